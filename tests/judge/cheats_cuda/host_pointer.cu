// Cheat: computes on the host, with the device's pointers. Refused by: isolation.
#include "honest.cuh"

void run(const ReluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < call.x.size(); ++i) y[i] = x[i] <= 0 ? 0 : x[i];
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
