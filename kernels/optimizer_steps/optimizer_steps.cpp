// The fused updates that engine/optim.h declares: one pass over the parameter arena. What a parameter without gradient
// keeps decays until it is subnormal, and would stay so for ever, because 0.9 times a few units in the last place
// rounds to the same: it becomes zero instead.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/optim.h"
#include "engine/slots.h"
#include "kernels/cpu/elements.h"
#include "kernels/optimizer_steps/begin_step.h"

namespace hs {
namespace {

constexpr int64_t cast_piece = 1024;  // parameters

void scale_loss_cpu(const ScaleLoss& call) {
  *call.share.mutable_data<float>() = *call.scale.data<float>() * call.weight;
}

// Partial results of a fixed number of pieces are added in order.
void measure_gradients_cpu(const MeasureGradients& call) {
  constexpr int64_t pieces = 64;
  const float* g = call.gradient.data<float>();
  const float factor = 1 / call.scaler.data<float>()[0];
  const int64_t grain = (call.gradient.size() + pieces - 1) / pieces;
  std::array<float, pieces> squares{}, bad{};
  parallel(pieces, [&, g](int64_t piece, int) {
    double sum = 0;
    int64_t not_finite = 0;
    for (int64_t i = piece * grain; i < std::min(call.gradient.size(), (piece + 1) * grain); ++i) {
      const double unscaled = g[i] * factor;
      sum += unscaled * unscaled;
      not_finite += !std::isfinite(g[i]);
    }
    squares[static_cast<size_t>(piece)] = static_cast<float>(sum);
    bad[static_cast<size_t>(piece)] = static_cast<float>(not_finite);
  });
  float* result = call.measured.mutable_data<float>();
  result[0] = result[1] = 0;
  for (size_t piece = 0; piece < pieces; ++piece) result[0] += squares[piece], result[1] += bad[piece];
}

void begin_step_cpu(const BeginStep& call) {
  if (call.gradient.defined()) measure_gradients({call.gradient, call.scaler, call.measured});
  begin_step_on(call.rule, call.measured.defined() ? call.measured.data<float>() : nullptr,
                call.scaler.mutable_data<float>(), call.step.mutable_data<int32_t>(), call.rates.mutable_data<float>());
}

// Calls update(begin, end) for pieces of the parameters, and casts each while it is in the cache.
template <class Update>
void update_all(const Tensor& value, Tensor& cast, const Update& update) {
  const float* w = value.data<float>();
  Half* f16 = cast.defined() && cast.dtype() == DType::f16 ? cast.mutable_data<Half>() : nullptr;
  BFloat16* bf16 = cast.defined() && cast.dtype() == DType::bf16 ? cast.mutable_data<BFloat16>() : nullptr;
  parallel_ranges(value.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
    [[maybe_unused]] const FlushSubnormals flush;
    for (int64_t first = begin, last; first < end; first = last) {
      update(first, last = std::min(first + cast_piece, end));
      if (f16) narrow(w + first, f16 + first, last - first);
      if (bf16) narrow(w + first, bf16 + first, last - first);
    }
  });
}

void sgd_step_cpu(const SgdStep& call) {
  const float* g = call.gradient.data<float>();
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient];
  float* v = call.velocity.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  update_all(call.value, call.cast, [=, s = call.rule](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      v[i] = s.momentum * v[i] + (g[i] * factor + s.weight_decay * w[i]);
      w[i] -= learning_rate * v[i];
    }
  });
}

void adam_step_cpu(const AdamStep& call) {
  const float* g = call.gradient.data<float>();
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient];
  const float correction1 = rate[rate_correction1], correction2 = rate[rate_correction2];
  const float into_gradient = call.rule.decoupled ? 0 : call.rule.weight_decay;
  const float shrink = call.rule.decoupled ? 1 - learning_rate * call.rule.weight_decay : 1;
  float* m = call.mean.mutable_data<float>();
  float* v = call.square.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  update_all(call.value, call.cast, [=, s = call.rule](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float gradient_i = g[i] * factor + into_gradient * w[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient_i;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient_i * gradient_i;
      w[i] = w[i] * shrink - learning_rate * (m[i] * correction1) / (std::sqrt(v[i] * correction2) + s.epsilon);
    }
  });
}

REGISTER_KERNEL(scale_loss, cpu, "simple", {.run = scale_loss_cpu});
REGISTER_KERNEL(measure_gradients, cpu, "simple", {.run = measure_gradients_cpu});
REGISTER_KERNEL(begin_step, cpu, "simple", {.run = begin_step_cpu});
REGISTER_KERNEL(sgd_step, cpu, "simple", {.run = sgd_step_cpu});
REGISTER_KERNEL(adam_step, cpu, "simple", {.run = adam_step_cpu});

}  // namespace
}  // namespace hs
