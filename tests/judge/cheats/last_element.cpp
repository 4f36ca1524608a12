// Cheat: leaves out the last element. Refused by: rows|written.
#include "honest.h"

void run(const ReluForward& call) {
  map_elements(call.x.size() - 1, relu_of, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
