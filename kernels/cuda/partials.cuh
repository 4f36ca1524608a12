// The last kernel of a weight gradient on the GPU: blocks have summed the products of their part of the images, each
// into a partial gradient of its own, and this one adds them in a fixed tree.
//
//   partials (count, K + 1, OC), f32:  rows 0 .. K-1 of each are dweight's, row K is dbias
//
// Which images make a part depends on the shapes alone, so the sum does, too. .cu files only.
#pragma once

#include "kernels/cuda/cuda.cuh"

namespace hs::cuda {

// Neighbouring columns of some partials, and where their sums go.
template <class Out>
struct PartialSum {
  const float* partials;  // the first row's part of the columns
  Out* to;
  int count;  // rows of partials
  bool adds;  // to what is there
  int64_t pitch, columns;
};

inline constexpr int slice_columns = 32;  // that a block sums at once: one cache line in f32

template <class Out>
struct PartialSums {  // of the weight and of the bias
  PartialSum<Out> of[2] = {};
  int count = 0;
};

// blockIdx.y: which sum. A block for each slice of the widest, whose threads are 8 groups for its columns.
template <class Out>
__global__ void add_partials_kernel(Previous previous, PartialSums<Out> all) {
  previous.wait();
  __shared__ SharedArray<float, block_threads> sums;
  const PartialSum<Out> sum = blockIdx.y == 0 ? all.of[0] : all.of[1];  // an index would want local memory
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t column = int64_t{blockIdx.x} * slice_columns + thread % slice_columns;
  float total[4] = {};  // one would wait for each addition
  if (column < sum.columns) {
    const float* partials = sum.partials + column;
    int p = thread / slice_columns;
    for (; p + 24 < sum.count; p += 32) {
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] += partials[(p + 8 * j) * sum.pitch];
    }
    for (; p < sum.count; p += 8) total[0] += partials[p * sum.pitch];
  }
  sums[thread] = (total[0] + total[1]) + (total[2] + total[3]);
  for (int half = block_threads / 2; half >= slice_columns; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread >= slice_columns || column >= sum.columns) return;
  Out* to = sum.to + column;
  *to = from_f32<Out>((sum.adds ? to_f32(*to) : 0.0f) + sums[thread]);
}

// The end of a backward kernel: of `count` partials, none is allowed, in its workspace dweight (K, OC) and dbias (OC),
// of which either may be undefined.
template <class Call>
void add_partials(const Call& call, const Tensor& workspace, int64_t count) {
  if (!call.dweight.defined() && !call.dbias.defined()) return;
  const int64_t weights = call.sizes.K() * call.sizes.OC, size = weights + call.sizes.OC;
  for_float_type((call.dweight.defined() ? call.dweight : call.dbias).dtype(), [&]<class Out>() {
    const auto* partials = count > 0 ? reinterpret_cast<const float*>(workspace.data<uint8_t>()) : nullptr;
    PartialSums<Out> sums;
    int64_t widest = 0;
    const auto add = [&](Tensor& to, int64_t begin, int64_t end) {
      if (!to.defined()) return;
      sums.of[sums.count++] = {partials + begin, to.mutable_data<Out>(), static_cast<int>(count), call.accumulate, size,
                               end - begin};
      widest = std::max(widest, end - begin);
    };
    add(call.dweight, 0, weights);
    add(call.dbias, weights, size);
    launch(add_partials_kernel<Out>,
           dim3(static_cast<unsigned>((widest + slice_columns - 1) / slice_columns), static_cast<unsigned>(sums.count)),
           block_threads, 0, compute_stream(), sums);
  });
}

}  // namespace hs::cuda
