// A warp per row: lanes take every 32nd element, and the row's maximum and sums are trees over the lanes.
#include "kernels/softmax/softmax.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr int warps = cuda::block_threads / 32;  // rows of a block

template <class T>
struct Row {
  float largest = -INFINITY, sum = 0;
  // All lanes of a warp together.
  __device__ Row(const T* x, int64_t C, int lane) {
    // fmaxf ignores a NaN; the sum is then NaN, and with it the whole row.
    for (int64_t c = lane; c < C; c += 32) largest = fmaxf(largest, cuda::to_f32(x[c]));
    largest = cuda::warp_max(largest);
    for (int64_t c = lane; c < C; c += 32) sum += exponential(x[c]);
    sum = cuda::warp_sum(sum);
  }
  __device__ float exponential(T x) const { return expf(cuda::to_f32(x) - largest); }
};

template <class T>
__global__ void softmax_forward_kernel(cuda::Previous previous, int64_t R, int64_t C, const T* x, T* y) {
  previous.wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = cuda::global_thread() / 32; i < R; i += int64_t{gridDim.x} * warps) {
    const Row<T> row(x + i * C, C, lane);
    for (int64_t c = lane; c < C; c += 32) y[i * C + c] = cuda::from_f32<T>(row.exponential(x[i * C + c]) / row.sum);
  }
}

template <class T>
__global__ void softmax_backward_kernel(cuda::Previous previous, int64_t R, int64_t C, const T* x, const T* dy, T* dx) {
  previous.wait();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = cuda::global_thread() / 32; i < R; i += int64_t{gridDim.x} * warps) {
    const Row<T> row(x + i * C, C, lane);
    float mean = 0;  // of dy, weighted with the probabilities
    for (int64_t c = lane; c < C; c += 32) {
      mean += row.exponential(x[i * C + c]) / row.sum * cuda::to_f32(dy[i * C + c]);
    }
    mean = cuda::warp_sum(mean);
    for (int64_t c = lane; c < C; c += 32) {
      const float probability = row.exponential(x[i * C + c]) / row.sum;
      dx[i * C + c] = cuda::from_f32<T>(probability * (cuda::to_f32(dy[i * C + c]) - mean));
    }
  }
}

void forward_cuda(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back(), R = call.x.size() / C;
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(softmax_forward_kernel<T>, cuda::blocks_for(R * 32), cuda::block_threads, 0, cuda::compute_stream(), R,
                 C, call.x.data<T>(), call.y.mutable_data<T>());
  });
}

void backward_cuda(const SoftmaxBackward& call) {
  const int64_t C = call.x.shape().back(), R = call.x.size() / C;
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(softmax_backward_kernel<T>, cuda::blocks_for(R * 32), cuda::block_threads, 0, cuda::compute_stream(),
                 R, C, call.x.data<T>(), call.dy.data<T>(), call.dx.mutable_data<T>());
  });
}

REGISTER_KERNEL(softmax_forward, cuda, "simple", {.run = forward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(softmax_backward, cuda, "simple", {.run = backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
