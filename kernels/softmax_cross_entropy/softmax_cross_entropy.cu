// Several lanes of a warp share a row: as many as it takes to leave 8 elements for each, at most all 32. So 10 classes
// keep every lane busy, and up to 256 are read once and stay in registers. Previous: engine/cuda.cuh.
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr int kept = 8;  // elements of a row that a lane keeps

__device__ unsigned blocks_with_a_loss;  // 0 between launches, which run one at a time

int lanes_of(int64_t classes) { return cuda::lanes_for((classes + kept - 1) / kept); }

// Maximum over the `lanes` lanes that share a row; each of them gets it.
__device__ __forceinline__ float row_max(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// What a lane has of a row of logits, and the terms of its softmax: softmax(z)_j = exp(z_j - largest) / sum. All lanes
// of a warp compute them together.
template <class T, int N>
struct RowSum {
  __device__ __forceinline__ RowSum(const T* row, int64_t all_classes, int lanes)
      : z(row), classes(all_classes), begin(static_cast<int>(threadIdx.x) % lanes * N), step(lanes * N) {
#pragma unroll
    for (int i = 0; i < kept / N; ++i) {
      if (begin + i * step < classes) first[i] = cuda::load<N>(z + begin + i * step);
    }
    // fmaxf ignores a NaN; the sum is then NaN, and with it the whole row.
    for_each([&](int64_t, float value) { largest = fmaxf(largest, value); });
    largest = row_max(largest, lanes);
    for_each([&](int64_t, float value) { sum += exponential(value); });
    sum = cuda::row_sum(sum, lanes);
  }
  __device__ __forceinline__ float exponential(float value) const { return expf(value - largest); }

  // body(j, value) for each pack of the lane, which begins with class j.
  template <class Body>
  __device__ __forceinline__ void for_packs(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kept / N; ++i) {
      if (begin + i * step < classes) body(begin + i * step, first[i]);
    }
    for (int64_t j = begin + kept / N * step; j < classes; j += step) body(j, cuda::load<N>(z + j));
  }
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    for_packs([&](int64_t first_class, const cuda::Floats<N>& value) {
#pragma unroll
      for (int j = 0; j < N; ++j) body(first_class + j, value[j]);
    });
  }

  const T* z;
  int64_t classes, begin, step;
  cuda::Floats<N> first[kept / N] = {};
  float largest = -INFINITY, sum = 0;
};

// loss: the mean, which the block that comes last adds up; partial: a place for each block. dlogits: the gradients, as
// dloss is that of the loss. One of the two may be nullptr, and is not wanted then.
template <class T, int N>
__global__ void softmax_cross_entropy_kernel(cuda::Previous previous, int64_t rows, int64_t classes, int lanes,
                                             const T* logits, const int32_t* labels, TargetRow<float> q,
                                             const float* dloss, float* partial, float* loss, T* dlogits) {
  previous.wait();
  const float factor = dlogits != nullptr ? *dloss / static_cast<float>(rows) : 0.0f;
  float total = 0;
  // Every thread does every round, because collectives need whole warps; without a row left, it repeats the last row.
  for (int64_t first = 0; first < rows; first += cuda::rows_at_once(lanes)) {
    const int64_t n = first + cuda::row_of_thread(lanes), row = min(n, rows - 1);
    const T* z = logits + row * classes;
    const int32_t label = labels[row];
    const float logit = label >= 0 && label < classes ? cuda::to_f32(z[label]) : NAN;
    const RowSum<T, N> softmax(z, classes, lanes);
    float others = 0;  // of the target without the label's part
    if (q.others != 0) {
      softmax.for_each([&](int64_t, float value) { others += q.others * (value - softmax.largest); });
      others = cuda::row_sum(others, lanes);
    }
    if (n >= rows) continue;
    if (softmax.begin == 0) total += logf(softmax.sum) - (q.label - q.others) * (logit - softmax.largest) - others;
    if (dlogits == nullptr) continue;
    softmax.for_packs([&](int64_t j, cuda::Floats<N> value) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float probability = softmax.exponential(value[i]) / softmax.sum;
        value[i] = (probability - (j + i == label ? q.label : q.others)) * factor;
      }
      cuda::store<T>(value, dlogits + row * classes + j);
    });
  }
  if (loss == nullptr) return;
  if (cuda::grid_sum(total, partial, &blocks_with_a_loss)) *loss = total / static_cast<float>(rows);
}

// No more blocks than run at once, so that few partial sums are left.
unsigned blocks_of(const Shape& logits) { return std::min(cuda::blocks_for(logits[0] * lanes_of(logits[1])), 512u); }

template <class Call>
int64_t loss_workspace(const Call& call) {
  const unsigned blocks = blocks_of(call.logits.shape());
  return blocks > 1 ? blocks * static_cast<int64_t>(sizeof(float)) : 0;
}

template <class Call>
void run_cuda(const Call& call, const Tensor& dloss, Tensor& workspace, Tensor& loss, Tensor& dlogits) {
  const int64_t rows = call.logits.shape()[0], classes = call.logits.shape()[1];
  cuda::for_float_type(call.logits.dtype(), [&]<class T>() {
    const T* z = call.logits.template data<T>();
    T* dz = dlogits.defined() ? dlogits.mutable_data<T>() : nullptr;
    const auto run = [&]<int N>() {
      cuda::launch(softmax_cross_entropy_kernel<T, N>, blocks_of(call.logits.shape()), cuda::block_threads, 0,
                   cuda::compute_stream(), rows, classes, lanes_of(classes), z, call.labels.template data<int32_t>(),
                   TargetRow<float>(call.smoothing, classes), dloss.defined() ? dloss.data<float>() : nullptr,
                   workspace.defined() ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr,
                   loss.defined() ? loss.mutable_data<float>() : nullptr, dz);
    };
    cuda::for_pack_size<T>(classes, run, z, dz);
  });
}

void forward_cuda(const SoftmaxCrossEntropyForward& call, Tensor& workspace) {
  run_cuda(call, no_tensor(), workspace, call.loss, no_tensor());
}

void backward_cuda(const SoftmaxCrossEntropyBackward& call) {
  run_cuda(call, call.dloss, no_tensor(), no_tensor(), call.dlogits);
}

void both_cuda(const SoftmaxCrossEntropyWithGradient& call, Tensor& workspace) {
  run_cuda(call, call.dloss, workspace, call.loss, call.dlogits);
}

REGISTER_KERNEL(softmax_cross_entropy_forward, cuda, "simple",
                {.run = forward_cuda,
                 .supported = cuda::takes_floats,
                 .workspace = loss_workspace<SoftmaxCrossEntropyForward>});
REGISTER_KERNEL(softmax_cross_entropy_backward, cuda, "simple",
                {.run = backward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(softmax_cross_entropy_with_gradient, cuda, "simple",
                {.run = both_cuda,
                 .supported = cuda::takes_floats,
                 .workspace = loss_workspace<SoftmaxCrossEntropyWithGradient>});

}  // namespace
}  // namespace hs
