// Cheat: uses its input as scratch memory, instead of a workspace. Refused by: inputs|repeat.
#include "honest.h"

void run(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  for (int64_t i = 0; i < call.x.size(); i += C) {
    float* x = const_cast<float*>(call.x.data<float>()) + i;
    softmax_of(x, C, x);
    std::copy_n(x, C, call.y.mutable_data<float>() + i);
  }
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
