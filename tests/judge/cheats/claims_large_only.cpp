// Cheat: claims only sizes that no row has, and is wrong there. Refused by: timed|drawn|rows.
#include "honest.h"

void run(const ReluForward& call) {
  map_elements(call.x.size() / 4, relu_of, call.y.mutable_data<float>(), call.x.data<float>());
}

bool supported(const ReluForward& call) { return is_easy(call) && call.x.size() > 500000; }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
