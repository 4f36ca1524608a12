// Cheat: exchanges its function with that of an honest variant of the slot. Refused by: isolation|no_gain|inputs.
#include "honest.h"

void run(const GeluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});

// The list begins with this variant; the next one is the best of the others.
const bool exchanged = [] {
  using Variant = Kernel<GeluForward>::Variant;
  auto& first = const_cast<Variant&>(static_cast<const Variant&>(*gelu_forward.variants()));
  if (first.next) std::swap(first.options.run, static_cast<Variant*>(first.next)->options.run);
  return true;
}();
