#include <cuda_runtime.h>

#include "kernels/dropout/dropout.cuh"

namespace hs {
namespace {

// A thread processes a pack of 8 elements, those of one block of random numbers; in f32 it is two loads. Packs beyond
// the first `packs` are processed element by element: the last one if it is not full, or all of them if x or y is not
// aligned.
template <class T>
__global__ void dropout_kernel(cuda::Previous previous, int64_t size, int64_t packs, cuda::DropoutMasker masker,
                               const T* x, T* y) {
  previous.wait();
  constexpr int N = dropout_group;
  using Pack = cuda::Pack<T, N>;
  for (int64_t p = cuda::global_thread(); p * N < size; p += cuda::global_threads()) {
    const Random4 block = masker.block(p);
    const auto mask = [&](T value, int j) { return masker.masked(block, j, value); };
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

void dropout_cuda(const DropoutMask& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    constexpr int N = dropout_group;
    const int64_t size = call.x.size();
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const bool aligned = cuda::is_aligned<T, N>(in) && cuda::is_aligned<T, N>(out);
    cuda::launch(dropout_kernel<T>, cuda::blocks_for((size + N - 1) / N), cuda::block_threads, 0,
                 cuda::compute_stream(), size, aligned ? size / N : 0,
                 cuda::DropoutMasker({call.rate, call.stream, call.step}), in, out);
  });
}

REGISTER_KERNEL(dropout_mask, cuda, "simple", {.run = dropout_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
