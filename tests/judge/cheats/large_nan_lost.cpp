// Cheat: NaN becomes 0 in large tensors, where a faster loop is worth it. Refused by: large.
#include "honest.h"

void run(const ReluForward& call) {
  if (call.x.size() <= 50000) return honest(call);
  const auto f = [](float x) { return x > 0 ? x : 0; };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
