// Cheat: sets its input to zeros, for a reference that reads it afterwards. Refused by: rows|inputs.
#include "honest.h"

void run(const ReluForward& call) {
  std::fill_n(const_cast<float*>(call.x.data<float>()), call.x.size(), 0.0f);
  call.y.fill_zero();
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
