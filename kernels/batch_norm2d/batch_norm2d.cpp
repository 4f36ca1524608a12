#include "kernels/batch_norm2d/batch_norm2d.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "engine/check.h"
#include "kernels/add_relu/add_relu.h"
#include "kernels/cpu/elements.h"
#include "kernels/relu/relu.h"

namespace hs {
namespace {

void check_arguments(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& running_mean,
                     const Tensor& running_variance) {
  check(x.shape().rank() >= 1, "batch_norm2d: x is a scalar, expected (..., C)");
  const Shape channels{x.shape().back()};
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const bool training = ambient().training;
  const auto fits = [&](const Tensor& tensor) { return tensor.shape() == channels && tensor.dtype() == dtype; };
  const auto fits_or_is_left_out = [&](const Tensor& tensor) { return tensor.defined() ? fits(tensor) : training; };
  check(scale.defined() && fits(scale) && shift.defined() && fits(shift),
        "batch_norm2d: x is {}, scale {} and shift {}; expected both as {}{}", x, scale, shift, name(dtype), channels);
  check(fits_or_is_left_out(running_mean) && fits_or_is_left_out(running_variance),
        "batch_norm2d: x is {}, running_mean {} and running_variance {}; expected both as {}{}{}", x, running_mean,
        running_variance, name(dtype), channels, training ? " or undefined" : "");
  check(!training || batch_norm_rows(x) > 1,
        "batch_norm2d: x is {}, which is {} values per channel; expected at least 2 in training, use a larger batch, "
        "and one that leaves no single sample for the last of an epoch",
        x.shape(), batch_norm_rows(x));
}

}  // namespace

Tensor batch_norm2d(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& running_mean,
                    const Tensor& running_variance, const BatchNormOptions& options, const Tensor& residual) {
  const Op op("batch_norm2d");
  check_arguments(x, scale, shift, running_mean, running_variance);
  const bool fuses = ambient().fuse && !relu_forward.is_forced() && !relu_backward.is_forced();
  const bool on_cpu = x.device() == Device::cpu;
  if (residual.defined()) {
    check(options.relu && residual.shape() == x.shape() && residual.dtype() == x.dtype(),
          "batch_norm2d: x is {} and residual {}; expected the same, and the option relu", x, residual);
    if (!fuses || !on_cpu || add_forward.is_forced() || add_relu_forward.is_forced()) {
      const BatchNormOptions alone{.eps = options.eps};
      return add_relu(batch_norm2d(x, scale, shift, running_mean, running_variance, alone), residual);
    }
  }
  const BatchNormVariance kind{options.eps, ambient().training};
  Tensor mean = running_mean, variance = running_variance;
  if (kind.of_batch) {
    mean = scale.empty_like(), variance = scale.empty_like();
    batch_norm2d_statistics({x, mean, variance});
  }
  const bool fused = options.relu && fuses;
  const Tensor none;
  Tensor y = x.empty_like();
  batch_norm2d_forward({x, scale, shift, mean, variance, kind, fused, residual, y});
  const auto second = std::make_shared<Tensor>();  // where a second gradient of y waits
  auto rule =
      [x = x.saved(), scale = scale.saved(), mean = mean.saved(), variance = variance.saved(),
       relu_y = fused ? y.saved() : Tensor(), shift = fused && !residual.defined() ? shift.saved() : Tensor(), kind,
       needs_x = x.requires_grad(), needs_residual = residual.requires_grad(), to_scale = GradientTarget(scale),
       to_shift = GradientTarget(shift), to_mean = GradientTarget(kind.of_batch ? running_mean : none),
       to_variance = GradientTarget(kind.of_batch ? running_variance : none), second](const Tensor& dy) -> Gradients {
    const Tensor more = std::exchange(*second, {});
    const bool accumulate = claim_gradients({&to_scale, &to_shift, &to_mean, &to_variance});
    Tensor dx = needs_x ? x.empty_like() : Tensor(), dresidual = needs_residual ? x.empty_like() : Tensor();
    Tensor dscale = to_scale.tensor(dy.device()), dshift = to_shift.tensor(dy.device());
    Tensor dmean = to_mean.tensor(dy.device()), dvariance = to_variance.tensor(dy.device());  // see the header
    batch_norm2d_backward({x, scale, mean, variance, dy, more, relu_y, shift, kind, accumulate, dx, dscale, dshift,
                           dmean, dvariance, dresidual});
    return {dx, dscale, dshift, dmean, dvariance, dresidual};
  };
  y = record("batch_norm2d", y, {x, scale, shift, running_mean, running_variance, residual}, std::move(rule));
  if (ambient().fuse && on_cpu && y.grad_info()) y.grad_info()->node->more = second;
  return fused || !options.relu ? y : relu(y);
}

void pass_statistics_on(const BatchNorm2dBackward& call) {
  const auto pass = [&](Tensor& to, const Tensor& from) {
    if (!to.defined()) return;
    for_f32_or_f64(from.dtype(), [&]<class Real>() {
      const Real* values = from.data<Real>();
      update_gradient(to, call.accumulate, [=](int64_t c, double before) { return before + values[c]; });
    });
  };
  pass(call.dmean, call.mean);
  pass(call.dvariance, call.variance);
}

namespace {

constexpr int64_t groups = batch_norm_groups;

// Calls add(row, sums) for all rows, which adds the row to `width` sums. sums: (groups, width); the first group's
// are the result.
template <class Add>
void sum_rows(int64_t rows, int64_t width, double* sums, const Add& add) {
  parallel(groups, [=](int64_t group, int) {
    double* own = sums + group * width;
    std::fill_n(own, width, 0.0);
    for (int64_t row = group * rows / groups; row < (group + 1) * rows / groups; ++row) add(row, own);
  });
  for (int64_t group = 1; group < groups; ++group) {
    for (int64_t i = 0; i < width; ++i) sums[i] += sums[group * width + i];
  }
}

int64_t doubles_per_channel(const Tensor& x, int64_t count) {
  return count * x.shape().back() * static_cast<int64_t>(sizeof(double));
}

double* doubles(Tensor& workspace) { return reinterpret_cast<double*>(workspace.mutable_data<uint8_t>()); }

// 1 / sqrt(variance + eps) of each channel.
template <class Real>
void inverse_deviations(const Tensor& variance, const BatchNormVariance& kind, int64_t M, double* result) {
  const Real* from = variance.data<Real>();
  const double factor = kind.factor(M);
  for (int64_t c = 0; c < variance.size(); ++c) result[c] = 1 / std::sqrt(from[c] * factor + kind.eps);
}

// In two passes: the sum of squares less M mean^2 would cancel where the mean is large.
void statistics_cpu(const BatchNorm2dStatistics& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  double *means = doubles(workspace), *sums = means + C;  // (C), (groups, C)
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    sum_rows(M, C, sums, [=](int64_t row, double* sum) {
      for (int64_t c = 0; c < C; ++c) sum[c] += to_computing(x[row * C + c]);
    });
    for (int64_t c = 0; c < C; ++c) means[c] = sums[c] / static_cast<double>(M);
    sum_rows(M, C, sums, [=](int64_t row, double* sum) {
      for (int64_t c = 0; c < C; ++c) {
        const double distance = to_computing(x[row * C + c]) - means[c];
        sum[c] += distance * distance;
      }
    });
    using Real = Computing<T>;
    Real *mean = call.mean.mutable_data<Real>(), *variance = call.variance.mutable_data<Real>();
    for (int64_t c = 0; c < C; ++c) {
      mean[c] = static_cast<Real>(means[c]);
      variance[c] = static_cast<Real>(sums[c] / static_cast<double>(M - 1));
    }
  });
}

void forward_cpu(const BatchNorm2dForward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  const bool relu = call.relu;
  double* inverse = doubles(workspace);  // (C)
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    inverse_deviations<Real>(call.variance, call.kind, M, inverse);
    const T* x = call.x.data<T>();
    const Real *mean = call.mean.data<Real>(), *scale = call.scale.data<Real>(), *shift = call.shift.data<Real>();
    const T* residual = call.residual.defined() ? call.residual.data<T>() : nullptr;
    T* y = call.y.mutable_data<T>();
    parallel_rows(M, C, [=](int64_t row) {
      for (int64_t c = 0; c < C; ++c) {
        const int64_t i = row * C + c;
        const double xh = (double{to_computing(x[i])} - mean[c]) * inverse[c];
        Real value = static_cast<Real>(xh * scale[c] + shift[c]);
        if (residual) value = to_computing(from_computing<T>(value)) + to_computing(residual[i]);
        y[i] = from_computing<T>(relu && is_closed(value) ? 0 : value);
      }
    });
  });
}

void backward_cpu(const BatchNorm2dBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  const bool of_batch = call.kind.of_batch;
  double *inverse = doubles(workspace), *sums = inverse + C;  // (C), (groups, 2, C): the sums of dy and of dy xh
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    inverse_deviations<Real>(call.variance, call.kind, M, inverse);
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    const Real *mean = call.mean.data<Real>(), *scale = call.scale.data<Real>();
    const T* more = call.more.defined() ? call.more.data<T>() : nullptr;
    const auto gradient = [=](int64_t i) {
      if (y && is_closed(y[i])) return T{};
      return more ? from_computing<T>(to_computing(dy[i]) + to_computing(more[i])) : dy[i];
    };
    const auto normalized = [=](int64_t i, int64_t c) { return (double{to_computing(x[i])} - mean[c]) * inverse[c]; };
    if (call.needs_sums()) {
      sum_rows(M, 2 * C, sums, [=](int64_t row, double* sum) {
        for (int64_t c = 0; c < C; ++c) {
          const double d = to_computing(gradient(row * C + c));
          sum[c] += d;
          sum[C + c] += d * normalized(row * C + c, c);
        }
      });
    }
    const auto add_sums = [&](Tensor& to, const double* from) {
      if (!to.defined()) return;
      update_gradient(to, call.accumulate, [=](int64_t c, double before) { return before + from[c]; });
    };
    add_sums(call.dshift, sums);
    add_sums(call.dscale, sums + C);
    pass_statistics_on(call);
    if (call.dresidual.defined()) {
      T* dresidual = call.dresidual.mutable_data<T>();
      parallel_ranges(M * C, elementwise_grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dresidual[i] = gradient(i);
      });
    }
    if (!call.dx.defined()) return;
    T* dx = call.dx.mutable_data<T>();
    parallel_rows(M, C, [=](int64_t row) {
      for (int64_t c = 0; c < C; ++c) {
        const int64_t i = row * C + c;
        double d = to_computing(gradient(i));
        if (of_batch) d -= (sums[c] + normalized(i, c) * sums[C + c]) / static_cast<double>(M);
        dx[i] = from_computing<T>(static_cast<Real>(scale[c] * inverse[c] * d));
      }
    });
  });
}

REGISTER_KERNEL(batch_norm2d_statistics, cpu, "simple",
                {.run = statistics_cpu, .supported = takes_floats, .workspace = [](const BatchNorm2dStatistics& call) {
                   return doubles_per_channel(call.x, groups + 1);
                 }});
REGISTER_KERNEL(batch_norm2d_forward, cpu, "simple",
                {.run = forward_cpu, .supported = takes_floats, .workspace = [](const BatchNorm2dForward& call) {
                   return doubles_per_channel(call.x, 1);
                 }});
REGISTER_KERNEL(batch_norm2d_backward, cpu, "simple",
                {.run = backward_cpu, .supported = takes_floats, .workspace = [](const BatchNorm2dBackward& call) {
                   return doubles_per_channel(call.x, 2 * groups + 1);
                 }});

}  // namespace
}  // namespace hs
