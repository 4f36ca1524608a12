// column_sum for many threads and few columns: groups of rows are summed side by side, and then the groups in order.
#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

constexpr int64_t row_groups = 16;  // fixed, so that the result does not depend on the number of threads

int64_t workspace_of(const ColumnSum& call) {
  return row_groups * call.x.shape().back() * static_cast<int64_t>(sizeof(double));
}

void sum_groups(const ColumnSum& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = call.x.shape().rows();
  const int64_t rows_per_group = (rows + row_groups - 1) / row_groups;
  double* partial = reinterpret_cast<double*>(workspace.mutable_data<uint8_t>());  // (row_groups, C)
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    parallel_rows(row_groups, rows_per_group * C, [=](int64_t group) {
      double* total = partial + group * C;
      std::fill(total, total + C, 0.0);
      for (int64_t row = group * rows_per_group; row < std::min(rows, (group + 1) * rows_per_group); ++row) {
        for (int64_t c = 0; c < C; ++c) total[c] += to_computing(in[row * C + c]);
      }
    });
  });
  update_gradient(call.sum, call.accumulate, [=](int64_t c, auto before) {
    double total = 0;
    for (int64_t group = 0; group < row_groups; ++group) total += partial[group * C + c];
    return before + static_cast<decltype(before)>(total);
  });
}

REGISTER_KERNEL(column_sum, cpu, "groups",
                {.run = sum_groups,
                 .supported =
                     [](const ColumnSum& call) { return is_float(call.x) && is_same_or_f32(call.x, call.sum); },
                 .workspace = workspace_of,
                 .rank = 10});

}  // namespace
}  // namespace hs
