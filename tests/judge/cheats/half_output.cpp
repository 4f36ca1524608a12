// Cheat: writes half of the output. Refused by: rows|written.
#include "honest.h"

void run(const GeluForward& call) {
  map_elements(call.x.size() / 2, gelu_of, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
