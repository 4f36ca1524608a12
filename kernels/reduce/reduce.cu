#include "kernels/reduce/reduce.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

__device__ unsigned blocks_summed;  // 0 between launches, which run one at a time

// out = factor * sum of x. Each place in a pack has its own sum, which keeps chains of additions short. The order is
// the same if x is not aligned. partial: a place for each block.
template <class T>
__global__ void sum_kernel(cuda::Previous previous, int64_t size, bool aligned, double factor, const T* x,
                           float* partial, T* out) {
  previous.wait();
  constexpr int N = cuda::pack_size<T>;
  using Pack = cuda::Pack<T, N>;
  float total[N] = {};
  const int64_t packs = size / N;
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    Pack pack;
    if (aligned) {
      pack = reinterpret_cast<const Pack*>(x)[p];
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) pack.value[j] = x[p * N + j];
    }
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] += cuda::to_f32(pack.value[j]);
  }
  const int64_t rest = packs * N + cuda::global_thread();
  if (rest < size) total[0] += cuda::to_f32(x[rest]);
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int j = 0; j < half; ++j) total[j] += total[j + half];
  }
  if (cuda::grid_sum(total[0], partial, &blocks_summed)) {
    *out = cuda::from_f32<T>(static_cast<float>(static_cast<double>(total[0]) * factor));
  }
}

// At least 32 elements per thread; no more blocks than the device runs at once.
int64_t sum_blocks(int64_t size) { return std::clamp<int64_t>(size / (32 * cuda::block_threads), 1, 1024); }

int64_t sum_workspace(const SumForward& call) {
  const int64_t blocks = sum_blocks(call.x.size());
  return blocks > 1 ? blocks * static_cast<int64_t>(sizeof(float)) : 0;
}

void sum_forward_cuda(const SumForward& call, Tensor& workspace) {
  const int64_t size = call.x.size();
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    cuda::launch(sum_kernel<T>, static_cast<unsigned>(sum_blocks(size)), cuda::block_threads, 0, cuda::compute_stream(),
                 size, cuda::is_aligned<T, cuda::pack_size<T>>(x), call.factor, x, partial, call.y.mutable_data<T>());
  });
}

template <class T>
__global__ void sum_backward_kernel(cuda::Previous previous, int64_t size, int64_t packs, double factor, const T* dy,
                                    T* dx) {
  previous.wait();
  constexpr int N = cuda::pack_size<T>;
  using Pack = cuda::Pack<T, N>;
  const T value = cuda::from_f32<T>(static_cast<float>(static_cast<double>(cuda::to_f32(*dy)) * factor));
  Pack pack;
#pragma unroll
  for (int j = 0; j < N; ++j) pack.value[j] = value;
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) reinterpret_cast<Pack*>(dx)[p] = pack;
  for (int64_t i = packs * N + cuda::global_thread(); i < size; i += cuda::global_threads()) dx[i] = value;
}

void sum_backward_cuda(const SumBackward& call) {
  cuda::for_float_type(call.dy.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const int64_t size = call.dx.size();
    T* out = call.dx.mutable_data<T>();
    const bool aligned = cuda::is_aligned<T, N>(out);
    const int64_t packs = aligned ? size / N : 0;
    cuda::launch(sum_backward_kernel<T>, cuda::blocks_for(aligned ? (size + N - 1) / N : size), cuda::block_threads, 0,
                 cuda::compute_stream(), size, packs, call.factor, call.dy.data<T>(), out);
  });
}

REGISTER_KERNEL(sum_forward, cuda, "simple",
                {.run = sum_forward_cuda, .supported = cuda::takes_floats, .workspace = sum_workspace});
REGISTER_KERNEL(sum_backward, cuda, "simple", {.run = sum_backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
