// The fused updates that engine/optim.h declares: one pass over the parameter arena.
#include <cmath>

#include "engine/optim.h"
#include "kernels/cpu.h"

namespace hs {
namespace {

void begin_step_cpu(float beta1, float beta2, Tensor& step, Tensor& rates) {
  const int32_t t = ++*step.mutable_data<int32_t>();
  float* rate = rates.mutable_data<float>();
  rate[1] = static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta1), t)));
  rate[2] = static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta2), t)));
}

void sgd_step_cpu(const Tensor& gradient, const SgdRule& rule, const Tensor& rates, Tensor& velocity, Tensor& value) {
  const float* g = gradient.data<float>();
  const float learning_rate = rates.data<float>()[0];
  float* v = velocity.mutable_data<float>();
  float* w = value.mutable_data<float>();
  parallel_ranges(value.size(), elementwise_grain, [=, s = rule](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      v[i] = s.momentum * v[i] + (g[i] + s.weight_decay * w[i]);
      w[i] -= learning_rate * v[i];
    }
  });
}

void adam_step_cpu(const Tensor& gradient, const AdamRule& rule, const Tensor& rates, Tensor& mean, Tensor& square,
                   Tensor& value) {
  const float* g = gradient.data<float>();
  const float learning_rate = rates.data<float>()[0];
  const float correction1 = rates.data<float>()[1], correction2 = rates.data<float>()[2];
  const float into_gradient = rule.decoupled ? 0 : rule.weight_decay;
  const float shrink = rule.decoupled ? 1 - learning_rate * rule.weight_decay : 1;
  float* m = mean.mutable_data<float>();
  float* v = square.mutable_data<float>();
  float* w = value.mutable_data<float>();
  parallel_ranges(value.size(), elementwise_grain, [=, s = rule](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float gradient_i = g[i] + into_gradient * w[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient_i;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient_i * gradient_i;
      w[i] = w[i] * shrink - learning_rate * (m[i] * correction1) / (std::sqrt(v[i] * correction2) + s.epsilon);
    }
  });
}

REGISTER_KERNEL(begin_step, cpu, "simple", {.run = begin_step_cpu});
REGISTER_KERNEL(sgd_step, cpu, "simple", {.run = sgd_step_cpu});
REGISTER_KERNEL(adam_step, cpu, "simple", {.run = adam_step_cpu});

}  // namespace
}  // namespace hs
