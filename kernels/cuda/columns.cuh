// Sums by column over the rows of a matrix (rows, C), in a fixed order. A thread has N neighbouring columns, which it
// reads at once; a block is `width` such packs side by side, each with the same number of threads, and one group of
// rows. What the groups have summed is summed by the last of them (is_last_block). .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"

namespace hs::cuda {

// Blocks of a launch that has more than one group: no more than run at once.
inline constexpr int64_t max_column_blocks = 512;

// How a matrix is divided among blocks.
struct ColumnGroups {
  // REQUIRES: N divides C
  ColumnGroups(int64_t all_rows, int64_t C, int N) : rows(all_rows) {
    while (width < C / N && width < 32) width *= 2;
    blocks = (C / N + width - 1) / width;
    const int64_t lanes = block_threads / width, most = max_column_blocks / std::max<int64_t>(blocks, 1);
    divide(rows > 16 * lanes ? std::min({(rows + 4 * lanes - 1) / (4 * lanes), most, 16 * lanes}) : 1);
  }
  // Divides the rows into another number of groups.
  void divide(int64_t count) {
    groups = std::max<int64_t>(count, 1);
    rows_per_group = (rows + groups - 1) / groups;
  }
  // Of a launch; with depth, of several such matrices.
  dim3 grid(int64_t depth = 1) const {
    return {static_cast<unsigned>(blocks), static_cast<unsigned>(groups), static_cast<unsigned>(depth)};
  }

  int64_t rows;  // of the matrix
  // Packs per block, always a power of two: 32, which make 512 neighbouring bytes, or fewer for narrow matrices, to
  // keep all threads busy.
  int width = 1;
  int64_t blocks;  // side by side
  // Groups of rows: 4 rows per thread, which are on their way together, or more if that would make more groups than run
  // at once, or than 16 per thread of the block that sums them. One if 16 rows per thread suffice: no join, then.
  int64_t groups;
  int64_t rows_per_group;  // the last groups may have fewer, or none
};

// Launches kernel(C, groups, arguments...) for a matrix (rows, C).
template <class... Parameters, class... Arguments>
void launch_columns(void (*kernel)(Previous, int64_t, ColumnGroups, Parameters...), int64_t rows, int64_t C, int N,
                    const Arguments&... arguments) {
  const ColumnGroups groups(rows, C, N);
  launch(kernel, groups.grid(), block_threads, 0, compute_stream(), C, groups, arguments...);
}

// Bytes for `sums` sums of each column of each group, if there is more than one, however wide the packs are.
inline int64_t column_workspace(int64_t rows, int64_t C, int sums) {
  int64_t groups = 1;
  for (const int N : {1, 4, 8}) {
    if (C % N == 0) groups = std::max(groups, ColumnGroups(rows, C, N).groups);
  }
  return groups > 1 ? groups * sums * C * static_cast<int64_t>(sizeof(float)) : 0;
}

// One array for all calls in a kernel: in a template that knows their lambdas each would have its own.
template <int size>
__device__ __forceinline__ SharedPointer<float> column_sums() {
  __shared__ SharedArray<float, size> sums;
  return sums.data();
}

template <int N>
__device__ __forceinline__ void add(const Floats<N>& value, Floats<N>& sum) {
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] += value[j];
}

// What a block and its threads work on.
template <int N>
struct ColumnPart {
  // Of the running block and thread, in a launch of division.grid().
  __device__ ColumnPart(int64_t columns_of_matrix, const ColumnGroups& division)
      : C(columns_of_matrix),
        rows(division.rows),
        rows_per_group(division.rows_per_group),
        first(blockIdx.y * rows_per_group),
        end(min(rows, first + rows_per_group)),
        thread(static_cast<int>(threadIdx.x)),
        width(division.width),
        columns(width * N),
        lane(thread / width),
        lanes(block_threads / width),
        place(thread % width * N),
        block_c(int64_t{blockIdx.x} * columns),
        c(block_c + place) {}
  // Whether the thread has columns: the last block may be wider than the rest of a row.
  __device__ bool has_columns() const { return c < C; }
  // One thread for each column of the block, block_c + thread.
  __device__ bool is_writer() const { return thread < columns && block_c + thread < C; }

  // use(row, load(row)) for the thread's rows among `begin` to `stop` - 1: `at_once` are loaded before the first is
  // used.
  template <int at_once = 4, class Load, class Use>
  __device__ __forceinline__ void for_rows(int64_t begin, int64_t stop, const Load& load_row, const Use& use) const {
    if (!has_columns()) return;
    int64_t row = begin + lane;
    for (; row + (at_once - 1) * lanes < stop; row += at_once * lanes) {
      decltype(load_row(row)) loaded[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) loaded[i] = load_row(row + i * lanes);
#pragma unroll
      for (int i = 0; i < at_once; ++i) use(row + i * lanes, loaded[i]);
    }
    for (; row < stop; row += lanes) use(row, load_row(row));
  }

  // Adds up the K sums of all threads of a column, in a tree: [k * columns + i] is then that of column block_c + i, in
  // shared memory, until the next call. All threads of the block call it.
  template <int K>
  __device__ __forceinline__ SharedPointer<float> totals(const Floats<N> (&sum)[K]) const {
    const SharedPointer<float> sums = column_sums<K * N * block_threads>();
    __syncthreads();  // a call before this one may still be read
#pragma unroll
    for (int k = 0; k < K; ++k) store<float>(sum[k], sums + ((lane * K + k) * columns + place));
    for (int size = lanes / 2 * K * columns; size >= K * columns; size /= 2) {
      __syncthreads();
      for (int i = thread; i < size; i += block_threads) sums[i] += sums[i + size];
    }
    __syncthreads();
    return sums;
  }

  // From the totals of a group those of all rows, in the block that comes last, where it is true. partial: (groups, K,
  // C), at a multiple of 16 bytes. done: as of is_last_block().
  template <int K>
  __device__ __forceinline__ bool join(SharedPointer<float> totals_of_group, float* partial, unsigned* done) const {
    if (gridDim.y == 1) return true;
    for (int k = 0; k < K && is_writer(); ++k) {
      partial[(blockIdx.y * K + k) * C + block_c + thread] = totals_of_group[k * columns + thread];
    }
    if (!is_last_block(done, gridDim.y)) return false;
    struct Row {
      Floats<N> sum[K];
    } all{};
    const auto load_group = [&](int64_t group) {
      Row row;
#pragma unroll
      for (int k = 0; k < K; ++k) row.sum[k] = load<N>(partial + (group * K + k) * C + c);
      return row;
    };
    for_rows(0, gridDim.y, load_group, [&](int64_t, const Row& row) {
#pragma unroll
      for (int k = 0; k < K; ++k) add(row.sum[k], all.sum[k]);
    });
    totals(all.sum);
    return true;
  }

  // Of the column that the thread writes, if any, total k: replaces what sum has of it, or is added with `accumulate`.
  template <class Out>
  __device__ __forceinline__ void write(SharedPointer<float> totals_of_block, int k, bool accumulate, Out* sum) const {
    if (!is_writer()) return;
    Out* to = sum + block_c + thread;
    const float total = totals_of_block[k * columns + thread];
    *to = from_f32<Out>((accumulate ? to_f32(*to) : 0.0f) + total);
  }

  int64_t C, rows;         // of the matrix
  int64_t rows_per_group;  // as in ColumnGroups
  int64_t first, end;      // rows of the block's group
  int thread;              // threadIdx.x
  int width, columns;      // packs and columns of the block
  int lane, lanes;         // which of the block's rows the thread begins with, and how many begin at once
  int place;               // of the thread's first column in the block
  int64_t block_c, c;      // first column of the block, and of the thread
};

}  // namespace hs::cuda
