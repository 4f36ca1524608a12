// The fused updates that kernels/optimizer/optimizer.h declares: one pass over the parameter arena.
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

struct Weigh {
  float weight;
  __device__ float operator()(int64_t, float scale) const { return scale * weight; }
};

void scale_loss_cuda(const ScaleLoss& call) {
  cuda::elementwise(1, Weigh{call.weight}, call.share.mutable_data<float>(), call.scale.data<float>());
}

constexpr int measure_blocks = 256;  // fixed, so that the order of additions is

// result (2): the sums over the block.
__device__ void add_up(float squares, float bad, float* result) {
  squares = cuda::block_sum(squares);
  __syncthreads();
  bad = cuda::block_sum(bad);
  if (threadIdx.x == 0) result[0] = squares, result[1] = bad;
}

// partial (measure_blocks, 2): thread 0 writes this block's.
__device__ void measure(int64_t size, const float* gradient, const float* scaler, float* partial) {
  const float factor = 1 / scaler[0];
  // A warp reads 32 neighbours, and the warps of a block lie a grid apart.
  const int64_t first = (int64_t{threadIdx.x} / 32 * gridDim.x + blockIdx.x) * 32 + threadIdx.x % 32;
  float squares = 0, bad = 0;
  for (int64_t i = first; i < size; i += cuda::global_threads()) {
    const float g = gradient[i] * factor;
    squares += g * g;
    if (!isfinite(gradient[i])) bad += 1;
  }
  add_up(squares, bad, partial + 2 * blockIdx.x);
}

__device__ void add_measures(const float* partial, float* measured) {
  static_assert(measure_blocks == cuda::block_threads, "one thread for each partial sum");
  add_up(partial[2 * threadIdx.x], partial[2 * threadIdx.x + 1], measured);
}

__global__ void measure_kernel(cuda::Previous previous, int64_t size, const float* gradient, const float* scaler,
                               float* partial) {
  previous.wait();
  measure(size, gradient, scaler, partial);
}

__global__ void add_measures_kernel(cuda::Previous previous, const float* partial, float* measured) {
  previous.wait();
  add_measures(partial, measured);
}

constexpr int64_t measure_workspace = 2 * measure_blocks * sizeof(float);

void measure_gradients_cuda(const MeasureGradients& call, Tensor& workspace) {
  Tensor partial = workspace.carve(0, {measure_blocks, 2}, DType::f32);
  cuda::launch(measure_kernel, measure_blocks, cuda::block_threads, 0, cuda::compute_stream(), call.gradient.size(),
               call.gradient.data<float>(), call.scaler.data<float>(), partial.mutable_data<float>());
  cuda::launch(add_measures_kernel, 1, cuda::block_threads, 0, cuda::compute_stream(), partial.data<float>(),
               call.measured.mutable_data<float>());
}

__device__ void begin_and_log(const StepRule& rule, const StepState& state, const LogState& log) {
  begin_step_on(rule, state);
  log_step(log);
}

__global__ void begin_step_kernel(cuda::Previous previous, StepRule rule, StepState state, LogState log) {
  previous.wait();
  begin_and_log(rule, state, log);
}

bool measures(const BeginStep& call) { return call.gradient.defined() && call.measured.defined(); }

void begin_step_cuda(const BeginStep& call) {
  if (measures(call)) measure_gradients({call.gradient, call.scaler, call.measured});
  cuda::launch(begin_step_kernel, 1, 1, 0, cuda::compute_stream(), call.rule, state_of(call), log_of(call));
}

__device__ unsigned blocks_that_measured;  // 0 between launches, which run one at a time: one step

// The same sums in the same order, in one launch: the last block to measure adds the partial sums and begins the step.
__global__ void measure_and_begin_kernel(cuda::Previous previous, int64_t size, const float* gradient, float* partial,
                                         StepRule rule, float* measured, StepState state, LogState log) {
  previous.wait();
  measure(size, gradient, state.scaler, partial);
  if (!cuda::is_last_block(&blocks_that_measured, gridDim.x)) return;
  add_measures(partial, measured);
  if (threadIdx.x == 0) begin_and_log(rule, state, log);
}

void begin_step_in_last_block(const BeginStep& call, Tensor& workspace) {
  Tensor partial = workspace.carve(0, {measure_blocks, 2}, DType::f32);
  cuda::launch(measure_and_begin_kernel, measure_blocks, cuda::block_threads, 0, cuda::compute_stream(),
               call.gradient.size(), call.gradient.data<float>(), partial.mutable_data<float>(), call.rule,
               call.measured.mutable_data<float>(), state_of(call), log_of(call));
}

struct Average {
  float decay;
  const int32_t* step;
  const float* rates;
  __device__ float operator()(int64_t, float w, float average) const {
    if (rates[rate_skip] != 0) return average;
    return average + (1 - average_decay(decay, *step)) * (w - average);
  }
};

void average_step_cuda(const AverageStep& call) {
  float* average = call.average.mutable_data<float>();
  cuda::elementwise(call.value.size(), Average{call.decay, call.step.data<int32_t>(), call.rates.data<float>()},
                    average, call.value.data<float>(), static_cast<const float*>(average));
}

struct Fold {
  float momentum, count;
  const float* rates;
  __device__ float operator()(int64_t, float sum, float value) const {
    return rates[rate_skip] != 0 ? value : value + momentum * (sum / count - value);
  }
};

void fold_statistics_cuda(const FoldStatistics& call) {
  float* value = call.value.mutable_data<float>();
  const Fold fold{call.momentum, static_cast<float>(call.micro_batches), call.rates.data<float>()};
  cuda::elementwise(call.value.size(), fold, value, call.sum.data<float>(), static_cast<const float*>(value));
}

// No cast is wanted.
struct NoCast {
  __device__ void store(int64_t, float) const {}
  __device__ void store_pack(int64_t, const cuda::Pack<float, 4>&) const {}
};

template <class T>
struct Cast {
  T* to;
  __device__ void store(int64_t i, float value) const { to[i] = cuda::from_f32<T>(value); }
  __device__ void store_pack(int64_t p, const cuda::Pack<float, 4>& values) const {
    cuda::Pack<T, 4> rounded;
#pragma unroll
    for (int j = 0; j < 4; ++j) rounded.value[j] = cuda::from_f32<T>(values.value[j]);
    reinterpret_cast<cuda::Pack<T, 4>*>(to)[p] = rounded;
  }
};

// update(decay, g, value, state...) for each element, after update.begin() has read the rates, and the cast of the
// value. `decay`: of each granule, or nullptr: that of the rule.
// `packs`: how many packs of 4 elements from the start; the rest is processed one by one.
template <class Update, class CastTo, class... State>
__global__ void update_kernel(cuda::Previous previous, int64_t size, int64_t packs, Update update, CastTo cast,
                              const float* rates, const float* decay, const float* gradient, float* value,
                              State*... state) {
  previous.wait();
  using Pack = cuda::Pack<float, 4>;
  if (rates[rate_skip] != 0) return;
  update.begin(rates);
  const auto decay_of = [&](int64_t i) {
    return decay ? decay[static_cast<uint64_t>(i) / ParameterArena::granule] : update.rule.weight_decay;
  };
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    const Pack g = reinterpret_cast<const Pack*>(gradient)[p];
    const float weight_decay = decay_of(4 * p);
    const auto update_pack = [&](Pack w, cuda::Pack<State, 4>... s) {
#pragma unroll
      for (int j = 0; j < 4; ++j) update(weight_decay, g.value[j], w.value[j], s.value[j]...);
      reinterpret_cast<Pack*>(value)[p] = w;
      ((reinterpret_cast<Pack*>(state)[p] = s), ...);
      cast.store_pack(p, w);
    };
    update_pack(reinterpret_cast<const Pack*>(value)[p], reinterpret_cast<const Pack*>(state)[p]...);
  }
  for (int64_t i = packs * 4 + cuda::global_thread(); i < size; i += cuda::global_threads()) {
    update(decay_of(i), gradient[i], value[i], state[i]...);
    cast.store(i, value[i]);
  }
}

template <class Call, class Update, class... State>
void update_all(const Call& call, const Update& update, State*... state) {
  const int64_t size = call.value.size();
  const float* g = call.gradient.template data<float>();
  float* value = call.value.template mutable_data<float>();
  const auto run = [&]<class CastTo>(const CastTo& cast, bool cast_is_aligned) {
    const bool aligned = cast_is_aligned && cuda::is_aligned<float, 4>(g) && cuda::is_aligned<float, 4>(value) &&
                         (cuda::is_aligned<float, 4>(state) && ...);
    const int64_t packs = aligned ? size / 4 : 0;
    cuda::launch(update_kernel<Update, CastTo, State...>, cuda::blocks_for(aligned ? (size + 3) / 4 : size),
                 cuda::block_threads, 0, cuda::compute_stream(), size, packs, update, cast,
                 call.rates.template data<float>(), call.decay.defined() ? call.decay.template data<float>() : nullptr,
                 g, value, state...);
  };
  const auto run_with = [&]<class T>() {
    T* to = call.cast.template mutable_data<T>();
    run(Cast<T>{to}, cuda::is_aligned<T, 4>(to));
  };
  if (!call.cast.defined()) {
    run(NoCast{}, true);
  } else if (call.cast.dtype() == DType::f16) {
    run_with.template operator()<Half>();
  } else {
    run_with.template operator()<BFloat16>();
  }
}

void sgd_step_cuda(const SgdStep& call) { update_all(call, SgdUpdate{call.rule}, call.velocity.mutable_data<float>()); }

void adam_step_cuda(const AdamStep& call) {
  update_all(call, AdamUpdate{call.rule}, call.mean.mutable_data<float>(), call.square.mutable_data<float>());
}

void schedule_free_step_cuda(const ScheduleFreeStep& call) {
  update_all(call, ScheduleFreeUpdate{call.rule, call.warmup_steps, call.step.data<int32_t>()},
             call.fast.mutable_data<float>(), call.square.mutable_data<float>());
}

REGISTER_KERNEL(scale_loss, cuda, "simple", {.run = scale_loss_cuda});
REGISTER_KERNEL(measure_gradients, cuda, "simple",
                {.run = measure_gradients_cuda,
                 .workspace = [](const MeasureGradients&) { return measure_workspace; }});
REGISTER_KERNEL(begin_step, cuda, "simple", {.run = begin_step_cuda});
REGISTER_KERNEL(begin_step, cuda, "last_block",
                {.run = begin_step_in_last_block,
                 .supported = measures,
                 .workspace = [](const BeginStep&) { return measure_workspace; },
                 .rank = 10});
REGISTER_KERNEL(average_step, cuda, "simple", {.run = average_step_cuda});
REGISTER_KERNEL(fold_statistics, cuda, "simple", {.run = fold_statistics_cuda});
REGISTER_KERNEL(sgd_step, cuda, "simple", {.run = sgd_step_cuda});
REGISTER_KERNEL(adam_step, cuda, "simple", {.run = adam_step_cuda});
REGISTER_KERNEL(schedule_free_step, cuda, "simple", {.run = schedule_free_step_cuda});

}  // namespace
}  // namespace hs
