// The last kernel of a weight gradient on the GPU: blocks have summed the products of their part of the images, each
// into a partial gradient of its own, and this one adds them in a fixed tree.
//
//   partials (count, K + 1, OC), f32:  rows 0 .. K-1 of each are dweight's, row K is dbias
//
// Which images make a part depends on the shapes alone, so the sum does, too. .cu files only.
#pragma once

#include "kernels/cuda/cuda.cuh"

namespace hs::cuda {

// 32 columns, which are one cache line in f32, times 8 groups of partials.
template <class Out>
__global__ void add_partials_kernel(Previous previous, int count, int64_t weights, int64_t size, bool accumulate,
                                    const float* partials, Out* dweight, Out* dbias) {
  previous.wait();
  __shared__ SharedArray<float, block_threads> sums;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t column = int64_t{blockIdx.x} * 32 + thread % 32;
  float total[4] = {};  // one would wait for each addition
  if (column < size) {
    int p = thread / 32;
    for (; p + 24 < count; p += 32) {
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] += partials[(p + 8 * j) * size + column];
    }
    for (; p < count; p += 8) total[0] += partials[p * size + column];
  }
  sums[thread] = (total[0] + total[1]) + (total[2] + total[3]);
  for (int half = block_threads / 2; half >= 32; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread >= 32 || column >= size) return;
  Out* to = column < weights ? dweight : dbias;
  const int64_t at = column < weights ? column : column - weights;
  if (to) to[at] = from_f32<Out>((accumulate ? to_f32(to[at]) : 0.0f) + sums[thread]);
}

// Adds `count` partials, none is allowed, into dweight (K, OC) and dbias (OC); either may be undefined.
inline void add_partials(const float* partials, int64_t count, bool accumulate, int64_t K, int64_t OC, Tensor& dweight,
                         Tensor& dbias) {
  const int64_t size = (K + 1) * OC;
  for_float_type(dweight.defined() ? dweight.dtype() : dbias.dtype(), [&]<class Out>() {
    launch(add_partials_kernel<Out>, static_cast<unsigned>((size + 31) / 32), block_threads, 0, compute_stream(),
           static_cast<int>(count), K * OC, size, accumulate, partials,
           dweight.defined() ? dweight.mutable_data<Out>() : nullptr,
           dbias.defined() ? dbias.mutable_data<Out>() : nullptr);
  });
}

}  // namespace hs::cuda
