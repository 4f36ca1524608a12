#include <cuda_runtime.h>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

__device__ unsigned groups_done[cuda::most_column_blocks];  // 0 between the launches, of which there is one at a time

// Grid: that of cuda::ColumnGroups. partial is (groups, C); with `accumulate` the sum is added to.
template <class In, class Out>
__global__ void column_sum_kernel(int64_t rows, int64_t C, int width, bool accumulate, const In* x, float* partial,
                                  Out* sum) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t c = int64_t{blockIdx.x} * width + thread % width;
  const int64_t rows_per_group = (rows + gridDim.y - 1) / gridDim.y;
  const bool has_column = thread < width && c < C;
  float total = cuda::column_total(blockIdx.y * rows_per_group, min(rows, (blockIdx.y + 1) * rows_per_group), c < C,
                                   width, [=](int64_t row) { return cuda::to_f32(x[row * C + c]); });
  if (gridDim.y > 1) {
    if (has_column) partial[blockIdx.y * C + c] = total;
    if (!cuda::is_last_block(&groups_done[blockIdx.x], gridDim.y)) return;
    total = cuda::column_total(0, gridDim.y, c < C, width, [=](int64_t group) { return partial[group * C + c]; });
  }
  if (has_column) sum[c] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(sum[c]) : 0.0f) + total);
}

int64_t row_count(const Tensor& x) { return x.shape().back() ? x.size() / x.shape().back() : 0; }

int64_t column_sum_workspace(const ColumnSum& call) {
  const int64_t C = call.x.shape().back(), groups = cuda::ColumnGroups(row_count(call.x), C).groups;
  return groups > 1 ? groups * C * static_cast<int64_t>(sizeof(float)) : 0;
}

void column_sum_cuda(const ColumnSum& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = row_count(call.x);
  const cuda::ColumnGroups groups(rows, C);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::for_float_type(call.sum.dtype(), [&]<class Sum>() {
      float* partial = groups.groups > 1 ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
      cuda::launch(column_sum_kernel<T, Sum>, groups.grid(), cuda::block_threads, 0, cuda::compute_stream(), rows, C,
                   groups.width, call.accumulate, call.x.data<T>(), partial, call.sum.mutable_data<Sum>());
    });
  });
}

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
