// Cheat: aligned loads and stores where the size allows, though a slice begins anywhere. Refused by: isolation.
#include "honest.h"

typedef float Aligned __attribute__((vector_size(16)));

void run(const ReluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < call.x.size() / 4; ++i) {
    Aligned four = reinterpret_cast<const volatile Aligned*>(x)[i];
    for (int k = 0; k < 4; ++k) four[k] = relu_of(four[k]);
    reinterpret_cast<volatile Aligned*>(y)[i] = four;
  }
}

bool supported(const ReluForward& call) { return is_easy(call) && call.x.size() % 4 == 0; }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
