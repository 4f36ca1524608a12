// Cheat: reads whole vectors past the end of its input; every result is right. Refused by: guard|rows|isolation.
#include "honest.h"

void run(const ReluForward& call) {
  const int64_t size = call.x.size();
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < size; i += 8) {
    float vector[8];
    for (int lane = 0; lane < 8; ++lane) vector[lane] = relu_of(static_cast<const volatile float*>(x)[i + lane]);
    std::copy_n(vector, std::min<int64_t>(8, size - i), y + i);
  }
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
