#include "kernels/bias_add/bias_add.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor bias_add(const Tensor& x, const Tensor& bias) {
  const Op op("bias_add");
  check(x.shape().rank() >= 1 && bias.shape() == Shape{x.shape().back()}, "bias_add: x is {} but bias is {}", x.shape(),
        bias.shape());
  Tensor y = x.empty_like();
  bias_add_forward({x, bias, y});
  return record("bias_add", y, {x, bias}, [to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
    return {dy, bias_gradient(dy, to_bias)};
  });
}

Tensor bias_gradient(const Tensor& dy, const GradientTarget& bias) {
  if (!bias.wanted()) return {};
  const GradientMode mode = gradient_mode({&bias});
  Tensor sum = bias.tensor(mode, dy.device());
  column_sum({dy, mode == GradientMode::add, sum});
  return mode == GradientMode::fresh ? sum : Tensor();
}

namespace {

void bias_add_cpu(const BiasAddForward& call) {
  const int64_t C = call.x.shape().back();
  const int64_t rows = C ? call.x.size() / C : 0;
  const auto add = [](auto value, auto bias_value) { return value + bias_value; };
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    const T* b = call.bias.data<T>();
    T* out = call.y.mutable_data<T>();
    parallel_ranges(rows, std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(C, 1)),
                    [=](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        map_range(0, C, add, out + i * C, in + i * C, b);
                      }
                    });
  });
}

// Rows are summed in this many groups, in double; then the groups are added in order. Fixed, so that the result does
// not depend on the number of threads.
constexpr int64_t row_groups = 16;

int64_t column_sum_workspace(const ColumnSum& call) {
  return row_groups * call.x.shape().back() * static_cast<int64_t>(sizeof(double));
}

void column_sum_cpu(const ColumnSum& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back();
  const int64_t rows = C ? call.x.size() / C : 0;
  const int64_t rows_per_group = (rows + row_groups - 1) / row_groups;
  double* partial = reinterpret_cast<double*>(workspace.mutable_data<uint8_t>());  // (row_groups, C)
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    parallel(row_groups, [=](int64_t group, int) {
      double* total = partial + group * C;
      std::fill(total, total + C, 0.0);
      for (int64_t row = group * rows_per_group; row < std::min(rows, (group + 1) * rows_per_group); ++row) {
        for (int64_t c = 0; c < C; ++c) total[c] += to_computing(in[row * C + c]);
      }
    });
  });
  for_float_type(call.sum.dtype(), [&]<class T>() {
    T* out = call.sum.mutable_data<T>();
    for (int64_t c = 0; c < C; ++c) {
      double total = 0;
      for (int64_t group = 0; group < row_groups; ++group) total += partial[group * C + c];
      const Computing<T> before = call.accumulate ? to_computing(out[c]) : 0;
      out[c] = from_computing<T>(before + static_cast<Computing<T>>(total));
    }
  });
}

REGISTER_KERNEL(bias_add_forward, cpu, "simple",
                {.run = bias_add_cpu, .supported = [](const BiasAddForward& call) { return is_float(call.x); }});
REGISTER_KERNEL(column_sum, cpu, "simple",
                {.run = column_sum_cpu,
                 .supported =
                     [](const ColumnSum& call) { return is_float(call.x) && is_same_or_f32(call.x, call.sum); },
                 .workspace = column_sum_workspace});

}  // namespace
}  // namespace hs
