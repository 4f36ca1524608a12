// Sums by column over the rows of a matrix (rows, C), in a fixed order. A block is `width` neighbouring columns, each
// with the same number of threads, and one group of rows; what the groups have summed is summed by the last of them
// (is_last_block). .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"

namespace hs::cuda {

// One array for every call in a kernel; in the template each type of `value` would have another one.
__device__ __forceinline__ SharedPointer<float> column_sums() {
  __shared__ SharedArray<float, block_threads> sums;
  return sums.data();
}

// The sum of value(row) over rows first to end - 1 of the thread's column, in the threads below `width`, each of which
// has another column. A thread sums every (block_threads / width)-th row, in four sums because one would wait for each
// addition; a tree then adds the threads of a column. REQUIRES: all threads of the block call it
template <class Value>
__device__ __forceinline__ float column_total(int64_t first, int64_t end, bool has_column, int width,
                                              const Value& value) {
  const SharedPointer<float> sums = column_sums();
  const int thread = static_cast<int>(threadIdx.x), row_lanes = block_threads / width;
  float total[4] = {};
  if (has_column) {
    int64_t row = first + thread / width;
    for (; row + 3 * row_lanes < end; row += 4 * row_lanes) {
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] += value(row + j * row_lanes);
    }
    for (; row < end; row += row_lanes) total[0] += value(row);
  }
  __syncthreads();  // a call before this one may still be reading
  sums[thread] = (total[0] + total[1]) + (total[2] + total[3]);
  for (int half = row_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half * width) sums[thread] += sums[thread + half * width];
  }
  return thread < width ? static_cast<float>(sums[thread]) : 0.0f;  // which it has written itself
}

// Of a launch with more than one group.
inline constexpr int64_t most_column_blocks = 1024;

// How a matrix is divided among blocks.
struct ColumnGroups {
  ColumnGroups(int64_t rows, int64_t C) {
    while (width < C && width < 32) width *= 2;
    blocks = (C + width - 1) / width;
    const int64_t rows_at_least = 32 * (block_threads / width);
    const int64_t most = most_column_blocks / std::max<int64_t>(blocks, 1);
    groups = std::clamp<int64_t>(rows / rows_at_least, 1, std::max<int64_t>(most, 1));
  }
  dim3 grid() const { return {static_cast<unsigned>(blocks), static_cast<unsigned>(groups)}; }

  // Columns per block, always a power of two: 32, which fill a 128-byte cache line in f32, or fewer for narrow
  // matrices, to keep all threads busy.
  int width = 1;
  int64_t blocks;  // side by side
  // Groups of rows: 32 rows per thread, or more if that would need more blocks than the device runs at once.
  int64_t groups;
};

}  // namespace hs::cuda
