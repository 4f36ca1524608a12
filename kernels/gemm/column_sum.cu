#include <cuda_runtime.h>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

__device__ unsigned groups_done[cuda::max_column_blocks];  // 0 between launches, which run one at a time

// Grid: that of cuda::ColumnGroups. partial is (groups, C); with `accumulate` the sum is added to.
template <class In, class Out, int N>
__global__ void column_sum_kernel(cuda::Previous previous, int64_t C, cuda::ColumnGroups groups, bool accumulate,
                                  const In* x, float* partial, Out* sum) {
  previous.wait();
  const cuda::ColumnPart<N> part(C, groups);
  cuda::Floats<N> own[1] = {};
  part.for_rows(
      part.first, part.end, [&](int64_t row) { return cuda::load<N>(x + row * C + part.c); },
      [&](int64_t, const cuda::Floats<N>& value) { cuda::add(value, own[0]); });
  const auto totals = part.totals(own);
  if (part.template join<1>(totals, partial, &groups_done[blockIdx.x])) part.write(totals, 0, accumulate, sum);
}

int64_t row_count(const Tensor& x) { return x.shape().back() ? x.size() / x.shape().back() : 0; }

int64_t column_sum_workspace(const ColumnSum& call) {
  return cuda::column_workspace(row_count(call.x), call.x.shape().back(), 1);
}

void column_sum_cuda(const ColumnSum& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = row_count(call.x);
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::for_float_type(call.sum.dtype(), [&]<class Sum>() {
      const T* x = call.x.data<T>();
      const auto launch = [&]<int N>() {
        cuda::launch_columns(column_sum_kernel<T, Sum, N>, rows, C, N, call.accumulate, x, partial,
                             call.sum.mutable_data<Sum>());
      };
      cuda::for_pack_size<T>(C, launch, x, partial);
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
