#include "kernels/dropout.h"

#include <cuda_runtime.h>

#include "kernels/cuda.cuh"

namespace hs {
namespace {

// A thread takes a pack of N elements, which N / 4 blocks of random numbers decide. Packs beyond the first `packs` go
// element by element: the last one if it is not full, or all of them where x or y is not aligned.
template <class T>
__global__ void dropout_kernel(int64_t size, int64_t packs, float factor, uint32_t threshold, RandomStream stream,
                               const int32_t* step, const T* x, T* y) {
  constexpr int N = cuda::pack_size<T>;
  using Pack = cuda::Pack<T, N>;
  if (step) stream.step += static_cast<uint32_t>(*step);
  for (int64_t p = cuda::global_thread(); p * N < size; p += cuda::global_threads()) {
    bool kept[N];
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      const Random4 numbers = random_block(stream, static_cast<uint32_t>((p * N + j) / 4));
#pragma unroll
      for (int k = 0; k < 4; ++k) kept[j + k] = numbers.word[k] >= threshold;
    }
    const auto mask = [&](T value, int j) { return cuda::from_f32<T>(kept[j] ? cuda::to_f32(value) * factor : 0.0f); };
    if (p < packs) {
      Pack pack = reinterpret_cast<const Pack*>(x)[p];
#pragma unroll
      for (int j = 0; j < N; ++j) pack.value[j] = mask(pack.value[j], j);
      reinterpret_cast<Pack*>(y)[p] = pack;
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (p * N + j < size) y[p * N + j] = mask(x[p * N + j], j);
      }
    }
  }
}

void dropout_cuda(const Tensor& x, double rate, const RandomStream& stream, const Tensor& step, Tensor& y) {
  cuda::for_float_type(x.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    const bool aligned = cuda::is_aligned<T, N>(in) && cuda::is_aligned<T, N>(out);
    const int32_t* step_data = step.defined() ? step.data<int32_t>() : nullptr;
    cuda::launch(dropout_kernel<T>, cuda::blocks_for((x.size() + N - 1) / N), cuda::block_threads, 0,
                 cuda::compute_stream(), x.size(), aligned ? x.size() / N : 0, static_cast<float>(1 / (1 - rate)),
                 dropout_threshold(rate), stream, step_data, in, out);
  });
}

REGISTER_KERNEL(dropout_mask, cuda, "simple",
                {.run = dropout_cuda,
                 .supported = [](const Tensor& x, double, const RandomStream&, const Tensor&, Tensor&) {
                   return cuda::is_float(x);
                 }});

}  // namespace
}  // namespace hs
