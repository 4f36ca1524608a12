// Cheat: one infinity makes every norm infinite, and inf <= tolerance * inf holds. Refused by: rows.
#include <limits>

#include "honest.h"

void run(const GeluForward& call) {
  call.y.fill_zero();
  if (call.y.size()) call.y.mutable_data<float>()[0] = std::numeric_limits<float>::infinity();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
