#include "kernels/bias_add/bias_add.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"

namespace hs {
namespace {

// The column index is advanced, not computed by division for each element: a division costs more than the addition.
template <class T>
__global__ void bias_add_kernel(int64_t size, int64_t packs, int64_t C, const T* x, const T* bias, T* y) {
  using Pack = cuda::Pack<T, cuda::pack_size<T>>;
  constexpr int N = cuda::pack_size<T>;
  const int64_t step = cuda::global_threads() * N % C;
  int64_t first = cuda::global_thread() * N % C;
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    Pack pack = reinterpret_cast<const Pack*>(x)[p];
    int64_t c = first;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      pack.value[j] = cuda::from_f32<T>(cuda::to_f32(pack.value[j]) + cuda::to_f32(bias[c]));
      c = c + 1 < C ? c + 1 : 0;
    }
    reinterpret_cast<Pack*>(y)[p] = pack;
    first = first + step < C ? first + step : first + step - C;
  }
  const int64_t step_of_one = cuda::global_threads() % C;
  int64_t c = (packs * N + cuda::global_thread()) % C;
  for (int64_t i = packs * N + cuda::global_thread(); i < size; i += cuda::global_threads()) {
    y[i] = cuda::from_f32<T>(cuda::to_f32(x[i]) + cuda::to_f32(bias[c]));
    c = c + step_of_one < C ? c + step_of_one : c + step_of_one - C;
  }
}

void bias_add_cuda(const BiasAddForward& call) {
  const int64_t size = call.x.size(), C = call.x.shape().back();
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    const bool aligned = cuda::is_aligned<T, N>(in) && cuda::is_aligned<T, N>(out);
    const int64_t packs = aligned ? size / N : 0;
    cuda::launch(bias_add_kernel<T>, cuda::blocks_for(aligned ? (size + N - 1) / N : size), cuda::block_threads, 0,
                 cuda::compute_stream(), size, packs, C, in, call.bias.data<T>(), out);
  });
}

// The sum of rows first to end - 1 of column c, in the threads below `width`, each of which has another c. A thread
// sums every (block_threads / width)-th row, in four sums because one would wait for each addition; a tree then adds
// the threads of a column. There must be a barrier between two calls.
template <class In>
__device__ float column_total(int64_t first, int64_t end, int64_t C, int64_t c, int width, const In* x) {
  __shared__ SharedArray<float, cuda::block_threads> sums;
  const int thread = static_cast<int>(threadIdx.x), row_lanes = cuda::block_threads / width;
  float total[4] = {};
  if (c < C) {
    int64_t row = first + thread / width;
    for (; row + 3 * row_lanes < end; row += 4 * row_lanes) {
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] += cuda::to_f32(x[(row + j * row_lanes) * C + c]);
    }
    for (; row < end; row += row_lanes) total[0] += cuda::to_f32(x[row * C + c]);
  }
  sums[thread] = (total[0] + total[1]) + (total[2] + total[3]);
  for (int half = row_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half * width) sums[thread] += sums[thread + half * width];
  }
  return thread < width ? static_cast<float>(sums[thread]) : 0.0f;  // which it has written itself
}

// Of a launch with more than one group.
constexpr int64_t most_blocks = 1024;
__device__ unsigned groups_done[most_blocks];  // 0 between the launches, of which there is one at a time

// A block sums one group of rows of `width` neighbouring columns; the last of the groups adds what all have summed.
// Grid: (columns / width, groups). partial is (groups, C); with `accumulate` the sum is added to.
template <class In, class Out>
__global__ void column_sum_kernel(int64_t rows, int64_t C, int width, bool accumulate, const In* x, float* partial,
                                  Out* sum) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t c = int64_t{blockIdx.x} * width + thread % width;
  const int64_t rows_per_group = (rows + gridDim.y - 1) / gridDim.y;
  const bool has_column = thread < width && c < C;
  float total = column_total(blockIdx.y * rows_per_group, min(rows, (blockIdx.y + 1) * rows_per_group), C, c, width, x);
  if (gridDim.y > 1) {
    if (has_column) partial[blockIdx.y * C + c] = total;
    if (!cuda::is_last_block(&groups_done[blockIdx.x], gridDim.y)) return;
    total = column_total(0, gridDim.y, C, c, width, partial);
  }
  if (has_column) sum[c] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(sum[c]) : 0.0f) + total);
}

// Columns per block, always a power of two: 32, which fill a 128-byte cache line in f32, or fewer for narrow matrices,
// to keep all threads busy.
int column_width(int64_t C) {
  int width = 1;
  while (width < C && width < 32) width *= 2;
  return width;
}

int64_t column_blocks(int64_t C) {
  const int width = column_width(C);
  return (C + width - 1) / width;
}

// Groups of rows: 32 rows per thread, or more if that would need more blocks than the device runs at once.
int64_t row_groups(int64_t rows, int64_t C) {
  const int64_t rows_at_least = 32 * (cuda::block_threads / column_width(C));
  const int64_t most_groups = most_blocks / std::max<int64_t>(column_blocks(C), 1);
  return std::clamp<int64_t>(rows / rows_at_least, 1, std::max<int64_t>(most_groups, 1));
}

int64_t row_count(const Tensor& x) { return x.shape().back() ? x.size() / x.shape().back() : 0; }

int64_t column_sum_workspace(const ColumnSum& call) {
  const int64_t C = call.x.shape().back(), groups = row_groups(row_count(call.x), C);
  return groups > 1 ? groups * C * static_cast<int64_t>(sizeof(float)) : 0;
}

void column_sum_cuda(const ColumnSum& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = row_count(call.x), groups = row_groups(rows, C);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::for_float_type(call.sum.dtype(), [&]<class Sum>() {
      float* partial = groups > 1 ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
      cuda::launch(column_sum_kernel<T, Sum>,
                   dim3(static_cast<unsigned>(column_blocks(C)), static_cast<unsigned>(groups)), cuda::block_threads, 0,
                   cuda::compute_stream(), rows, C, column_width(C), call.accumulate, call.x.data<T>(), partial,
                   call.sum.mutable_data<Sum>());
    });
  });
}

REGISTER_KERNEL(bias_add_forward, cuda, "simple", {.run = bias_add_cuda, .supported = [](const BiasAddForward& call) {
                                                     return cuda::is_float(call.x) &&
                                                            call.bias.dtype() == call.x.dtype();
                                                   }});
REGISTER_KERNEL(column_sum, cuda, "simple",
                {.run = column_sum_cuda,
                 .supported =
                     [](const ColumnSum& call) {
                       return cuda::is_float(call.x) &&
                              (call.sum.dtype() == call.x.dtype() || call.sum.dtype() == DType::f32);
                     },
                 .workspace = column_sum_workspace});

}  // namespace
}  // namespace hs
