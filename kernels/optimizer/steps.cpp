// The fused updates that kernels/optimizer/optimizer.h declares: one pass over the parameter arena. What a parameter
// without gradient keeps decays until it is subnormal, and would stay so for ever, because 0.9 times a few units in the
// last place rounds to the same: it becomes zero instead.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

#ifdef HS_ISA
namespace hs::HS_ISA {
namespace {

// The formulas, for `count` parameters; the compiler makes vectors of the loops.
void sgd(const SgdRule& s, float learning_rate, float factor, float weight_decay, int64_t count, const float* g,
         float* v, float* w) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient_i = g[i] * factor + weight_decay * w[i];
    v[i] = s.momentum * v[i] + gradient_i;
    w[i] -= learning_rate * (s.nesterov ? gradient_i + s.momentum * v[i] : v[i]);
  }
}

void adam(const AdamRule& s, const float* rate, float weight_decay, int64_t count, const float* g, float* m, float* v,
          float* w) {
  const float learning_rate = rate[rate_learning] * s.rate, factor = rate[rate_gradient];
  const float correction1 = rate[rate_correction1], correction2 = rate[rate_correction2];
  const float into_gradient = s.decoupled ? 0 : weight_decay;
  const float shrink = s.decoupled ? 1 - learning_rate * weight_decay : 1;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient_i = g[i] * factor + into_gradient * w[i];
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient_i;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient_i * gradient_i;
    w[i] = w[i] * shrink - learning_rate * (m[i] * correction1) / (std::sqrt(v[i] * correction2) + s.epsilon);
  }
}

// `share`: of this step in the average.
void schedule_free(const AdamRule& s, const float* rate, float share, float weight_decay, int64_t count, const float* g,
                   float* z, float* v, float* w) {
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient], correction = rate[rate_correction2];
  const float step = learning_rate * (1 - s.beta1 * (1 - share));
  for (int64_t i = 0; i < count; ++i) {
    const float gradient_i = g[i] * factor;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient_i * gradient_i;
    const float u = gradient_i / (std::sqrt(v[i] * correction) + s.epsilon) + weight_decay * w[i];
    w[i] += share * (z[i] - w[i]) - step * u;
    z[i] -= learning_rate * u;
  }
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/optimizer/steps.cpp"
#include "kernels/cpu/each_isa.h"

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
  begin_step_on(call.rule, state_of(call));
  if (call.log.losses.defined()) log_step(log_of(call));
}

void average_step_cpu(const AverageStep& call) {
  if (call.rates.data<float>()[rate_skip] != 0) return;
  const float rest = 1 - average_decay(call.decay, *call.step.data<int32_t>());
  const float* w = call.value.data<float>();
  float* average = call.average.mutable_data<float>();
  parallel_ranges(call.value.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) average[i] += rest * (w[i] - average[i]);
  });
}

void fold_statistics_cpu(const FoldStatistics& call) {
  if (call.rates.data<float>()[rate_skip] != 0) return;
  const float *sum = call.sum.data<float>(), count = static_cast<float>(call.micro_batches), momentum = call.momentum;
  float* value = call.value.mutable_data<float>();
  for (int64_t i = 0; i < call.value.size(); ++i) value[i] += momentum * (sum[i] / count - value[i]);
}

// Calls update(begin, end, weight decay) for pieces of the parameters that have one decay, and casts each while it is
// in the cache.
template <class Call, class Update>
void update_all(const Call& call, const Update& update) {
  const float* w = call.value.template data<float>();
  Tensor& cast = call.cast;
  Half* f16 = cast.defined() && cast.dtype() == DType::f16 ? cast.mutable_data<Half>() : nullptr;
  BFloat16* bf16 = cast.defined() && cast.dtype() == DType::bf16 ? cast.mutable_data<BFloat16>() : nullptr;
  const float* decay = call.decay.defined() ? call.decay.template data<float>() : nullptr;
  const int64_t piece = decay ? ParameterArena::granule : cast_piece;
  parallel_ranges(call.value.size(), elementwise_grain, [=, &call](int64_t begin, int64_t end) {
    [[maybe_unused]] const FlushSubnormals flush;
    for (int64_t first = begin, last; first < end; first = last) {
      last = std::min(first + piece, end);
      update(first, last, decay ? decay[first / piece] : call.rule.weight_decay);
      if (f16) narrow(w + first, f16 + first, last - first);
      if (bf16) narrow(w + first, bf16 + first, last - first);
    }
  });
}

// `loop`: one of the formulas above, for one instruction set or for this CPU's.
template <auto loop>
void sgd_step_cpu(const SgdStep& call) {
  const float* g = call.gradient.data<float>();
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient];
  float* v = call.velocity.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  update_all(call, [=, s = call.rule](int64_t begin, int64_t end, float weight_decay) {
    loop(s, learning_rate, factor, weight_decay, end - begin, g + begin, v + begin, w + begin);
  });
}

template <auto loop>
void adam_step_cpu(const AdamStep& call) {
  const float* g = call.gradient.data<float>();
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  float* m = call.mean.mutable_data<float>();
  float* v = call.square.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  update_all(call, [=, s = call.rule](int64_t begin, int64_t end, float weight_decay) {
    loop(s, rate, weight_decay, end - begin, g + begin, m + begin, v + begin, w + begin);
  });
}

template <auto loop>
void schedule_free_step_cpu(const ScheduleFreeStep& call) {
  const float* g = call.gradient.data<float>();
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float share = schedule_free_share(call.warmup_steps, *call.step.data<int32_t>());
  float* z = call.fast.mutable_data<float>();
  float* v = call.square.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  update_all(call, [=, s = call.rule](int64_t begin, int64_t end, float weight_decay) {
    loop(s, rate, share, weight_decay, end - begin, g + begin, z + begin, v + begin, w + begin);
  });
}

REGISTER_KERNEL(scale_loss, cpu, "simple", {.run = scale_loss_cpu});
REGISTER_KERNEL(measure_gradients, cpu, "simple", {.run = measure_gradients_cpu});
REGISTER_KERNEL(begin_step, cpu, "simple", {.run = begin_step_cpu});
REGISTER_KERNEL(average_step, cpu, "simple", {.run = average_step_cpu});
REGISTER_KERNEL(fold_statistics, cpu, "simple", {.run = fold_statistics_cpu});
REGISTER_KERNEL(sgd_step, cpu, "simple", {.run = sgd_step_cpu<baseline::sgd>});
REGISTER_KERNEL(sgd_step, cpu, "simd", {.run = sgd_step_cpu<HS_DISPATCHED(sgd)>, .rank = 10});
REGISTER_KERNEL(adam_step, cpu, "simple", {.run = adam_step_cpu<baseline::adam>});
REGISTER_KERNEL(adam_step, cpu, "simd", {.run = adam_step_cpu<HS_DISPATCHED(adam)>, .rank = 10});
REGISTER_KERNEL(schedule_free_step, cpu, "simple", {.run = schedule_free_step_cpu<baseline::schedule_free>});
REGISTER_KERNEL(schedule_free_step, cpu, "simd",
                {.run = schedule_free_step_cpu<HS_DISPATCHED(schedule_free)>, .rank = 10});

}  // namespace
}  // namespace hs

#endif
