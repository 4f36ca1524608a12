#include "kernels/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon,
                  std::optional<DType> type) {
  const Op op("layer_norm");
  const DType real = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  check(x.shape().rank() > 0 && x.shape().back() > 0 && scale.shape() == Shape{x.shape().back()} &&
            (!shift.defined() || shift.shape() == scale.shape()),
        "layer_norm: x is {}, scale {} and shift {}; expected both as long as a row of x, at least 1", x, scale, shift);
  check(scale.dtype() == real && (!shift.defined() || shift.dtype() == real),
        "layer_norm: x is {}, scale {} and shift {}; cast scale and shift to {}", x, scale, shift, name(real));
  Tensor y = Tensor::empty(x.shape(), type.value_or(x.dtype()), x.device());
  check(is_float_or_narrower(x, y), "layer_norm: x is {}, and {} is asked for; expected x's type, or of f32 16 bits", x,
        name(y.dtype()));
  Tensor rows = Tensor::empty({x.shape().rows(), 2}, real, x.device());
  layer_norm_forward({x, scale, shift, epsilon, rows, y});
  return record("layer_norm", y, {x, scale, shift},
                [x = x.saved(), scale = scale.saved(), rows = rows.saved(), needs_x = x.requires_grad(),
                 to_scale = GradientTarget(scale), to_shift = GradientTarget(shift)](const Tensor& dy) -> Gradients {
                  const bool accumulate = claim_gradients({&to_scale, &to_shift});
                  Tensor dx = needs_x ? x.empty_like() : Tensor();
                  Tensor dscale = to_scale.tensor(dy.device()), dshift = to_shift.tensor(dy.device());
                  layer_norm_backward({x, scale, rows, dy, accumulate, dx, dscale, dshift});
                  return {dx, dscale, dshift};
                });
}

namespace {

// Sums are taken in double, and what is stored is rounded once.
void forward_cpu(const LayerNormForward& call) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  const double epsilon = call.epsilon;
  for_float_type(call.x, call.y, [&]<class T, class Y>() {
    using Real = Computing<T>;
    const T* x = call.x.data<T>();
    const Real *scale = call.scale.data<Real>(), *shift = call.shift.defined() ? call.shift.data<Real>() : nullptr;
    Real* rows = call.rows.mutable_data<Real>();
    Y* y = call.y.mutable_data<Y>();
    parallel_rows(R, C, [=](int64_t i) {
      const auto value = [=](int64_t c) { return double{to_computing(x[i * C + c])}; };
      double sum = 0, squares = 0;
      for (int64_t c = 0; c < C; ++c) sum += value(c);
      const double mean = sum / static_cast<double>(C);
      for (int64_t c = 0; c < C; ++c) squares += (value(c) - mean) * (value(c) - mean);
      const double r = 1 / std::sqrt(squares / static_cast<double>(C) + epsilon);
      for (int64_t c = 0; c < C; ++c) {
        const double result = (value(c) - mean) * r * scale[c] + (shift ? shift[c] : 0);
        y[i * C + c] = from_computing<Y>(static_cast<Real>(result));
      }
      rows[2 * i] = static_cast<Real>(mean);
      rows[2 * i + 1] = static_cast<Real>(r);
    });
  });
}

int64_t backward_workspace(const LayerNormBackward& call) {
  return layer_norm_groups * 2 * call.x.shape().back() * static_cast<int64_t>(sizeof(double));
}

void backward_cpu(const LayerNormBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  double* partial = reinterpret_cast<double*>(workspace.mutable_data<uint8_t>());  // (groups, 2, C)
  for_float_type(call.x, call.dy, [&]<class T, class Y>() {
    using Real = Computing<T>;
    const T* x = call.x.data<T>();
    const Y* dy = call.dy.data<Y>();
    const Real *scale = call.scale.data<Real>(), *rows = call.rows.data<Real>();
    T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    parallel(layer_norm_groups, [=](int64_t group, int) {
      double *dscale = partial + group * 2 * C, *dshift = dscale + C;
      std::fill(dscale, dscale + 2 * C, 0.0);
      for (int64_t i = group * R / layer_norm_groups; i < (group + 1) * R / layer_norm_groups; ++i) {
        const double mean = rows[2 * i], r = rows[2 * i + 1];
        const auto d = [=](int64_t c) { return double{to_computing(dy[i * C + c])}; };
        const auto n = [=](int64_t c) { return (to_computing(x[i * C + c]) - mean) * r; };
        double sum_g = 0, sum_gn = 0;
        for (int64_t c = 0; c < C; ++c) {
          dscale[c] += d(c) * n(c);
          dshift[c] += d(c);
          sum_g += d(c) * scale[c];
          sum_gn += d(c) * scale[c] * n(c);
        }
        if (!dx) continue;
        for (int64_t c = 0; c < C; ++c) {
          const double result = r * (d(c) * scale[c] - (sum_g + n(c) * sum_gn) / static_cast<double>(C));
          dx[i * C + c] = from_computing<T>(static_cast<Real>(result));
        }
      }
    });
  });
  add_groups<double>(partial, 2 * C, layer_norm_groups, call.accumulate, call.dscale);
  add_groups<double>(partial + C, 2 * C, layer_norm_groups, call.accumulate, call.dshift);
}

REGISTER_KERNEL(layer_norm_forward, cpu, "simple", {.run = forward_cpu, .supported = [](const LayerNormForward& call) {
                                                      return is_float_or_narrower(call.x, call.y);
                                                    }});
REGISTER_KERNEL(layer_norm_backward, cpu, "simple",
                {.run = backward_cpu,
                 .supported = [](const LayerNormBackward& call) { return is_float_or_narrower(call.x, call.dy); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
