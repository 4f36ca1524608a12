// Several lanes of a warp share a row: as many as it takes to leave 8 elements for each, at most all 32. So 10 classes
// keep every lane busy, and 1000 are read 32 neighbours at a time.
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr unsigned whole_warp = 0xffffffffu;
constexpr int most_threads = 1024;

int lanes_for(int64_t classes) {
  int lanes = 1;
  while (lanes < 32 && lanes * 8 < classes) lanes *= 2;
  return lanes;
}

// The row of this thread among those that the launch processes at once, and how many they are. `lanes` divides the
// threads of a block, so 32 bits are divided.
__device__ __forceinline__ int64_t row_of_thread(int lanes) {
  const int rows = static_cast<int>(blockDim.x) / lanes;
  return int64_t{blockIdx.x} * rows + static_cast<int>(threadIdx.x) / lanes;
}
__device__ __forceinline__ int64_t rows_at_once(int lanes) {
  return int64_t{gridDim.x} * (static_cast<int>(blockDim.x) / lanes);
}

// Maximum, and sum, over the `lanes` lanes that share a row; each of them gets it.
__device__ __forceinline__ float row_max(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(whole_warp, value, distance));
  }
  return value;
}
__device__ __forceinline__ float row_sum(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(whole_warp, value, distance);
  return value;
}

// The terms of the softmax of a row of logits: softmax(z)_j = exp(z_j - largest) / sum. All lanes of a warp compute
// them together.
template <class T>
struct RowSum {
  float largest = -INFINITY, sum = 0;
  __device__ RowSum(const T* z, int64_t classes, int lane, int lanes) {
    // fmaxf ignores a NaN; the sum is then NaN, and with it the whole row.
    for (int64_t j = lane; j < classes; j += lanes) largest = fmaxf(largest, cuda::to_f32(z[j]));
    largest = row_max(largest, lanes);
    for (int64_t j = lane; j < classes; j += lanes) sum += exponential(z[j]);
    sum = row_sum(sum, lanes);
  }
  __device__ float exponential(T z) const { return expf(cuda::to_f32(z) - largest); }
};

// q of the header: what a row should be.
struct Targets {
  float others, label;
  Targets(float smoothing, int64_t classes)
      : others(smoothing / static_cast<float>(classes)), label(1 - smoothing + others) {}
};

// dz: the gradient of this row's logits, as factor is the gradient of its loss.
template <class T>
__device__ void row_gradient(const RowSum<T>& softmax, const T* z, int32_t label, const Targets& q, float factor,
                             int64_t classes, int lane, int lanes, T* dz) {
  for (int64_t j = lane; j < classes; j += lanes) {
    const float probability = softmax.exponential(z[j]) / softmax.sum;
    const float target = j == label ? q.label : q.others;
    dz[j] = cuda::from_f32<T>((probability - target) * factor);
  }
}

// loss: the mean; with `dlogits`, the gradients as well.
template <class T, bool with_gradient>
__device__ void forward(int64_t N, int64_t classes, int lanes, const T* logits, const int32_t* labels, const Targets& q,
                        const float* dloss, float* loss, T* dlogits) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const float factor = with_gradient ? *dloss / static_cast<float>(N) : 0.0f;
  float total = 0;
  // Every thread does every round, because collectives need whole warps; without a row left, it repeats the last row.
  for (int64_t first = 0; first < N; first += rows_at_once(lanes)) {
    const int64_t n = first + row_of_thread(lanes), row = min(n, N - 1);
    const T* z = logits + row * classes;
    const RowSum<T> softmax(z, classes, lane, lanes);
    float others = 0;  // of the target without the label's part
    if (q.others != 0) {
      for (int64_t j = lane; j < classes; j += lanes) others += q.others * (cuda::to_f32(z[j]) - softmax.largest);
      others = row_sum(others, lanes);
    }
    if (n >= N) continue;
    const int32_t label = labels[row];
    if (with_gradient) row_gradient(softmax, z, label, q, factor, classes, lane, lanes, dlogits + row * classes);
    if (lane != 0) continue;
    const bool valid = label >= 0 && label < classes;
    const float labels_part = valid ? (q.label - q.others) * (cuda::to_f32(z[label]) - softmax.largest) : NAN;
    total += logf(softmax.sum) - labels_part - others;
  }
  total = cuda::block_sum(total);
  if (threadIdx.x == 0) *loss = total / static_cast<float>(N);
}

// One block, so that the sum of the losses has a fixed order: the slot has no workspace for the partial sums of several
// blocks.
template <class T>
__global__ void __launch_bounds__(most_threads)
    softmax_cross_entropy_forward_kernel(int64_t N, int64_t classes, int lanes, const T* logits, const int32_t* labels,
                                         Targets q, float* loss) {
  forward<T, false>(N, classes, lanes, logits, labels, q, nullptr, loss, nullptr);
}

template <class T>
__global__ void __launch_bounds__(most_threads)
    both_kernel(int64_t N, int64_t classes, int lanes, const T* logits, const int32_t* labels, Targets q,
                const float* dloss, float* loss, T* dlogits) {
  forward<T, true>(N, classes, lanes, logits, labels, q, dloss, loss, dlogits);
}

void forward_cuda(const SoftmaxCrossEntropyForward& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  cuda::for_float_type(call.logits.dtype(), [&]<class T>() {
    cuda::launch(softmax_cross_entropy_forward_kernel<T>, 1, most_threads, 0, cuda::compute_stream(), N, classes,
                 lanes_for(classes), call.logits.data<T>(), call.labels.data<int32_t>(),
                 Targets(call.smoothing, classes), call.loss.mutable_data<float>());
  });
}

template <class T>
__global__ void softmax_cross_entropy_backward_kernel(int64_t N, int64_t classes, int lanes, const T* logits,
                                                      const int32_t* labels, Targets q, const float* dloss,
                                                      T* dlogits) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const float factor = *dloss / static_cast<float>(N);
  for (int64_t first = 0; first < N; first += rows_at_once(lanes)) {  // every thread does every round
    const int64_t n = first + row_of_thread(lanes), row = min(n, N - 1);
    const T* z = logits + row * classes;
    const RowSum<T> softmax(z, classes, lane, lanes);
    if (n >= N) continue;
    row_gradient(softmax, z, labels[row], q, factor, classes, lane, lanes, dlogits + row * classes);
  }
}

void backward_cuda(const SoftmaxCrossEntropyBackward& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int lanes = lanes_for(classes);
  cuda::for_float_type(call.logits.dtype(), [&]<class T>() {
    cuda::launch(softmax_cross_entropy_backward_kernel<T>, cuda::blocks_for(N * lanes), cuda::block_threads, 0,
                 cuda::compute_stream(), N, classes, lanes, call.logits.data<T>(), call.labels.data<int32_t>(),
                 Targets(call.smoothing, classes), call.dloss.data<float>(), call.dlogits.mutable_data<T>());
  });
}

void both_cuda(const SoftmaxCrossEntropyWithGradient& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  cuda::for_float_type(call.logits.dtype(), [&]<class T>() {
    cuda::launch(both_kernel<T>, 1, most_threads, 0, cuda::compute_stream(), N, classes, lanes_for(classes),
                 call.logits.data<T>(), call.labels.data<int32_t>(), Targets(call.smoothing, classes),
                 call.dloss.data<float>(), call.loss.mutable_data<float>(), call.dlogits.mutable_data<T>());
  });
}

// Few enough rows for one block, which goes round a few times; for more, a launch of their own pays.
bool fit_one_block(const SoftmaxCrossEntropyWithGradient& call) {
  constexpr int64_t most_rounds = 4;
  const Shape& shape = call.logits.shape();
  return cuda::is_float(call.logits) && shape[0] * lanes_for(shape[1]) <= most_rounds * most_threads;
}

// A row is correct if its label's logit exceeds all before it and no later one exceeds it. A NaN fails both.
template <class T>
__global__ void argmax_matches_kernel(int64_t N, int64_t classes, int lanes, const T* logits, const int32_t* labels,
                                      int32_t* count) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  int matches = 0;
  for (int64_t first = 0; first < N; first += rows_at_once(lanes)) {  // every thread does every round
    const int64_t n = first + row_of_thread(lanes), row = min(n, N - 1);
    const T* z = logits + row * classes;
    const int32_t label = labels[row];
    bool correct = n < N && label >= 0 && label < classes;
    if (correct) {
      const float chosen = cuda::to_f32(z[label]);
      for (int64_t j = lane; j < classes; j += lanes) {
        const float value = cuda::to_f32(z[j]);
        correct = correct && (j < label ? value < chosen : value <= chosen);
      }
    }
    const float wrong_lanes = row_sum(correct ? 0.0f : 1.0f, lanes);
    matches += __syncthreads_count(lane == 0 && wrong_lanes == 0);
  }
  if (threadIdx.x == 0) atomicAdd(count, matches);  // of integers: the order does not matter
}

void argmax_matches_cuda(const ArgmaxMatches& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int lanes = lanes_for(classes);
  call.count.fill_zero();
  cuda::for_float_type(call.logits.dtype(), [&]<class T>() {
    cuda::launch(argmax_matches_kernel<T>, cuda::blocks_for(N * lanes), cuda::block_threads, 0, cuda::compute_stream(),
                 N, classes, lanes, call.logits.data<T>(), call.labels.data<int32_t>(),
                 call.count.mutable_data<int32_t>());
  });
}

REGISTER_KERNEL(softmax_cross_entropy_forward, cuda, "simple",
                {.run = forward_cuda,
                 .supported = [](const SoftmaxCrossEntropyForward& call) { return cuda::is_float(call.logits); }});
REGISTER_KERNEL(softmax_cross_entropy_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const SoftmaxCrossEntropyBackward& call) { return cuda::is_float(call.logits); }});
REGISTER_KERNEL(softmax_cross_entropy_with_gradient, cuda, "one_block", {.run = both_cuda, .supported = fit_one_block});
REGISTER_KERNEL(argmax_matches, cuda, "simple",
                {.run = argmax_matches_cuda,
                 .supported = [](const ArgmaxMatches& call) { return cuda::is_float(call.logits); }});

}  // namespace
}  // namespace hs
