// The fused updates that kernels/optimizer/optimizer.h declares: one pass over the parameter arena. What a parameter
// without gradient keeps decays until it is subnormal, and would stay so for ever, because 0.9 times a few units in the
// last place rounds to the same: it becomes zero instead.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
namespace hs::HS_ISA {
namespace {

template <class Update, class... State>
void update_each(Update update, float weight_decay, int64_t count, const float* g, float* w, State*... state) {
  for (int64_t i = 0; i < count; ++i) update(weight_decay, g[i], w[i], state[i]...);  // in vectors
}

// For one instruction set; registered alone, or as this CPU's.
constexpr auto sgd = update_each<SgdUpdate, float>;
constexpr auto adam = update_each<AdamUpdate, float, float>;
constexpr auto schedule_free = update_each<ScheduleFreeUpdate, float, float>;

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

// Writes the weights from first to last - 1 in 16 bits, to an array of all.
void write_cast(const float* w, int64_t first, int64_t last, DType type, void* cast) {
  for_f32_or_16_bits(type, [=]<class T>() { store_block(w + first, static_cast<T*>(cast) + first, last - first); });
}

// Updates pieces of the parameters that have one weight decay by `loop`, and casts each while it is in the cache.
template <auto loop, class Call, class Update, class... State>
void update_all(const Call& call, Update update, State*... state) {
  const float *g = call.gradient.template data<float>(), *rates = call.rates.template data<float>();
  if (rates[rate_skip] != 0) return;
  update.begin(rates);
  float* w = call.value.template mutable_data<float>();
  void* const cast = call.cast.defined() ? call.cast.mutable_raw_data() : nullptr;
  const float* decay = call.decay.defined() ? call.decay.template data<float>() : nullptr;
  const int64_t piece = decay ? ParameterArena::granule : cast_piece;
  parallel_ranges(call.value.size(), elementwise_grain, [=, type = call.cast.dtype()](int64_t begin, int64_t end) {
    const FlushSubnormals flush;
    for (int64_t first = begin, last; first < end; first = last) {
      last = std::min(first + piece, end);
      const float weight_decay = decay ? decay[first / piece] : update.rule.weight_decay;
      loop(update, weight_decay, last - first, g + first, w + first, (state + first)...);
      if (cast) write_cast(w, first, last, type, cast);
    }
  });
}

template <auto loop>
void sgd_step_cpu(const SgdStep& call) {
  update_all<loop>(call, SgdUpdate{call.rule}, call.velocity.mutable_data<float>());
}

template <auto loop>
void adam_step_cpu(const AdamStep& call) {
  update_all<loop>(call, AdamUpdate{call.rule}, call.mean.mutable_data<float>(), call.square.mutable_data<float>());
}

template <auto loop>
void schedule_free_step_cpu(const ScheduleFreeStep& call) {
  update_all<loop>(call, ScheduleFreeUpdate{call.rule, call.warmup_steps, call.step.data<int32_t>()},
                   call.fast.mutable_data<float>(), call.square.mutable_data<float>());
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
