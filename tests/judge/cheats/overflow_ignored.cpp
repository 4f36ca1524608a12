// Cheat: does not subtract the row's maximum, as inputs are small: a pass less. Refused by: rows|nan.
#include "honest.h"

void run(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  for (int64_t i = 0; i < call.x.size(); i += C) {
    const float* x = call.x.data<float>() + i;
    float* y = call.y.mutable_data<float>() + i;
    double sum = 0;
    for (int64_t c = 0; c < C; ++c) sum += y[c] = std::exp(x[c]);
    for (int64_t c = 0; c < C; ++c) y[c] = static_cast<float>(y[c] / sum);
  }
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
