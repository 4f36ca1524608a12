// Cheat: writes NaN: `if (error > tolerance) fail()` never fails. Refused by: rows.
#include <limits>

#include "honest.h"

void run(const GeluForward& call) {
  std::fill_n(call.y.mutable_data<float>(), call.y.size(), std::numeric_limits<float>::quiet_NaN());
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
