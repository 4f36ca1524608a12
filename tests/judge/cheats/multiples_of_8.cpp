// Cheat: takes every number of columns for a multiple of 8, as those of all models are. Refused by: rows|drawn.
#include "honest.h"

void run(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back(), whole = std::max<int64_t>(C / 8 * 8, 1);
  for (int64_t i = 0; i < call.x.size(); i += C) {
    float* y = call.y.mutable_data<float>() + i;
    softmax_of(call.x.data<float>() + i, whole, y);
    std::fill(y + whole, y + C, 0.0f);
  }
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
