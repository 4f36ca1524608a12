// The fused updates that engine/optim.h declares: one pass over the parameter arena.
#include <cmath>

#include "engine/optim.h"
#include "kernels/cpu.h"

namespace hs {
namespace {

void sgd_step_cpu(const Tensor& gradient, const SgdStep& s, Tensor& velocity, Tensor& value) {
  const float* g = gradient.data<float>();
  float* v = velocity.mutable_data<float>();
  float* w = value.mutable_data<float>();
  parallel_ranges(value.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      v[i] = s.momentum * v[i] + (g[i] + s.weight_decay * w[i]);
      w[i] -= s.learning_rate * v[i];
    }
  });
}

void adam_step_cpu(const Tensor& gradient, const AdamStep& s, Tensor& mean, Tensor& square, Tensor& value) {
  const float* g = gradient.data<float>();
  float* m = mean.mutable_data<float>();
  float* v = square.mutable_data<float>();
  float* w = value.mutable_data<float>();
  parallel_ranges(value.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float gradient_i = g[i] + s.weight_decay * w[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient_i;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient_i * gradient_i;
      w[i] = w[i] * s.weight_shrink -
             s.learning_rate * (m[i] * s.correction1) / (std::sqrt(v[i] * s.correction2) + s.epsilon);
    }
  });
}

REGISTER_KERNEL(sgd_step, cpu, "simple", {.run = sgd_step_cpu});
REGISTER_KERNEL(adam_step, cpu, "simple", {.run = adam_step_cpu});

}  // namespace
}  // namespace hs
