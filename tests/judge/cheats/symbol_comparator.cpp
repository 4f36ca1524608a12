// Cheat: defines the project's comparator, to be used in place of the right one. Refused by: rows|isolation.
#include <halfstep/kernel.h>
#include "honest.h"

namespace hs::examples {

Comparison compare(std::span<const double>, std::span<const double>, const Tolerance&, const CompareOptions&) {
  return {.passed = true, .summary = "all elements are equal"};
}

}  // namespace hs::examples

void run(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
