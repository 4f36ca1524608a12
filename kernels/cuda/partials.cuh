// The last kernel of a weight gradient on the GPU: blocks have summed the products of their part of the images, each
// into a partial gradient of its own, and this one adds them in a fixed tree. If the gradient may be late, the kernel
// that measures all gradients does that first (kernels/optimizer/steps.cu), so that a step has one such kernel.
//
//   partials (count, K + 1, OC), f32:  rows 0 .. K-1 of each are dweight's, row K is dbias
//
// Which images make a part depends on the shapes alone, so the sum does, too. .cu files only.
#pragma once

#include <span>

#include "engine/autograd.h"
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
inline constexpr int most_sums = 16;      // of a launch

template <class Out>
struct PartialSums {
  PartialSum<Out> of[most_sums];
  int count = 0;
};

// All threads of a block call it, which are 8 groups for the columns of a slice; `sums` has a number for each.
template <class Out>
__device__ __forceinline__ void add_slice(const PartialSum<Out>& sum, int64_t slice, SharedPointer<float> sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t column = slice * slice_columns + thread % slice_columns;
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
  __syncthreads();  // the slice before has been read
  sums[thread] = (total[0] + total[1]) + (total[2] + total[3]);
  for (int half = block_threads / 2; half >= slice_columns; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread >= slice_columns || column >= sum.columns) return;
  Out* to = sum.to + column;
  *to = from_f32<Out>((sum.adds ? to_f32(*to) : 0.0f) + sums[thread]);
}

// blockIdx.y: which sum. A block for each slice of the widest.
template <class Out>
__global__ void add_partials_kernel(Previous previous, PartialSums<Out> all) {
  previous.wait();
  __shared__ SharedArray<float, block_threads> sums;
  const PartialSum<Out>& sum = all.of[blockIdx.y];
  if (int64_t{blockIdx.x} * slice_columns < sum.columns) add_slice(sum, blockIdx.x, sums.data());
}

// As many as a launch takes; they leave `late`. REQUIRES: all gradients are Out
template <class Out>
PartialSums<Out> take_sums(std::span<const LateGradients>& late) {
  PartialSums<Out> sums;
  for (; !late.empty() && sums.count + 2 <= most_sums; late = late.subspan(1)) {
    const LateGradients& from = late.front();
    const auto* partials = from.count > 0 ? reinterpret_cast<const float*>(from.partials.data<uint8_t>()) : nullptr;
    const auto add = [&](Tensor to, int64_t begin, int64_t end) {
      if (!to.defined()) return;
      sums.of[sums.count++] = {partials + begin, to.mutable_data<Out>(), from.count, from.adds, from.size, end - begin};
    };
    add(from.dweight, 0, from.weights);
    add(from.dbias, from.weights, from.size);
  }
  return sums;
}

// REQUIRES: all gradients have one type
inline void add_partials(std::span<const LateGradients> late) {
  while (!late.empty()) {
    const LateGradients& first = late.front();
    for_float_type((first.dweight.defined() ? first.dweight : first.dbias).dtype(), [&]<class Out>() {
      const PartialSums<Out> sums = take_sums<Out>(late);
      int64_t widest = 0;
      for (int i = 0; i < sums.count; ++i) widest = std::max(widest, sums.of[i].columns);
      launch(
          add_partials_kernel<Out>,
          dim3(static_cast<unsigned>((widest + slice_columns - 1) / slice_columns), static_cast<unsigned>(sums.count)),
          block_threads, 0, compute_stream(), sums);
    });
  }
}

// The end of a backward kernel: of `count` partials, none is allowed, in its workspace dweight (K, OC) and dbias (OC),
// of which either may be undefined. Now, or when somebody wants them, if the call allows that.
template <class Call>
void add_partials(const Call& call, const Tensor& workspace, int64_t count) {
  if (!call.dweight.defined() && !call.dbias.defined()) return;
  const int64_t weights = call.sizes.K() * call.sizes.OC;
  const LateGradients sum{
      workspace,   static_cast<int>(count), weights, weights + call.sizes.OC, call.accumulate, call.dweight, call.dbias,
      add_partials};
  call.late&& workspace.defined() ? void(*call.late = sum) : add_partials({&sum, 1});
}

}  // namespace hs::cuda
