// Batch normalization, per channel (the last dimension): y = (x - mean) / sqrt(variance + eps) * scale + shift.
// Ioffe and Szegedy, "Batch normalization", 2015.
//
// In training (ambient().training), mean and variance are those of x itself: of one micro-batch, which is what makes
// the result independent of the number of threads and ranks. Otherwise they are the running ones.
//
// The op does not change the running tensors. In training its backward rule returns, in the place of their gradients,
// the mean of x and the variance of x divided by M - 1, for running tensors that are leaves and want gradients;
// Optimizer::step() folds those into the running values once per step (Module::add_statistic). So a forward pass
// without a backward pass counts nowhere, and one that checkpointing repeats counts once. These "gradients" do not
// depend on dy: a loss scale is not in them, nor the weight of a micro-batch, and backward() adds up those of several
// micro-batches, as it does with all gradients. Outside of training the running tensors get no gradients.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// Options of batch_norm2d().
struct BatchNormOptions {
  double eps = 1e-5;  // added to the variance
  bool relu = false;  // then relu(), in the same pass if ambient().fuse; its mask is y, so nothing more is saved
};

// x (..., C) -> the same shape. The other tensors are (C), f32, or f64 if x is. The running tensors may be undefined in
// training. Throws if x has fewer than 2 values per channel in training.
//
// A residual, of x's shape and type, makes it the end of a residual block: add_relu(y, residual), with the same bits.
// On the CPU that is one pass if ambient().fuse, and one backward for both. REQUIRES: options.relu with a residual
Tensor batch_norm2d(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& running_mean,
                    const Tensor& running_variance, const BatchNormOptions& options = {}, const Tensor& residual = {});

// How a variance is to be read. That of the batch is divided by M - 1, M values per channel, as a running variance is
// an average of such; the batch is normalized by the sum of squares divided by M.
struct BatchNormVariance {
  double eps;     // added to the variance
  bool of_batch;  // false: a running variance, used as it is
  // From the stored variance to the one that normalizes.
  double factor(int64_t M) const { return of_batch ? static_cast<double>(M - 1) / static_cast<double>(M) : 1; }
};

// mean and variance (divided by M - 1) of each channel, f32, or f64 for f64. REQUIRES: M > 1
struct BatchNorm2dStatistics {
  const Tensor& x;  // (..., C)
  Tensor& mean;
  Tensor& variance;
  auto tensors() const { return tensor_list(x, mean, variance); }
};
constinit inline Kernel<BatchNorm2dStatistics> batch_norm2d_statistics{"batch_norm2d_statistics"};

struct BatchNorm2dForward {  // x and y (..., C); scale, shift, mean and variance (C)
  const Tensor& x;
  const Tensor& scale;
  const Tensor& shift;
  const Tensor& mean;
  const Tensor& variance;
  BatchNormVariance kind;  // the variance's
  bool relu;               // y = max(y, 0)
  const Tensor& residual;  // added to y, as rounded, before ReLU; undefined: nothing
  Tensor& y;
  auto tensors() const { return tensor_list(x, scale, shift, mean, variance, residual, y); }
};
constinit inline Kernel<BatchNorm2dForward> batch_norm2d_forward{"batch_norm2d_forward"};

// With r = 1 / sqrt(variance + eps), xh = (x - mean) r, and sums over the M values of the channel:
//   dshift = sum dy,  dscale = sum dy xh,  dx = scale r (dy - dshift / M - xh dscale / M)
// If the mean and the variance are not those of the batch, dx = scale r dy. An undefined output is not
// computed. With `accumulate` dscale, dshift, dmean and dvariance are added to.
struct BatchNorm2dBackward {
  const Tensor& x;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& variance;
  const Tensor& dy;
  const Tensor& more;    // a second gradient of y, which is added to dy; or undefined
  const Tensor& relu_y;  // after a forward pass with relu its y: where that is zero, dy counts as zero; else undefined
  const Tensor& shift;   // with it a kernel can tell from x where relu_y is zero; undefined after one with a residual
  BatchNormVariance kind;  // the variance's
  bool accumulate;
  Tensor& dx;
  Tensor& dscale;
  Tensor& dshift;
  Tensor& dmean;      // of the running mean: the mean
  Tensor& dvariance;  // of the running variance: the variance
  Tensor& dresidual;  // dy as it counts
  auto tensors() const {
    return tensor_list(x, scale, mean, variance, dy, more, relu_y, shift, dx, dscale, dshift, dmean, dvariance,
                       dresidual);
  }
  // Otherwise dx needs no sums.
  bool needs_sums() const { return dscale.defined() || dshift.defined() || (dx.defined() && kind.of_batch); }
};
constinit inline Kernel<BatchNorm2dBackward> batch_norm2d_backward{"batch_norm2d_backward"};

// Writes dmean and dvariance on the CPU.
void pass_statistics_on(const BatchNorm2dBackward& call);

// On the CPU rows are summed in this many groups, in double, which are then added in order: any number of threads gives
// the same bits.
inline constexpr int64_t batch_norm_groups = 16;

// M: values per channel.
inline int64_t batch_norm_rows(const Tensor& x) { return x.shape().back() ? x.size() / x.shape().back() : 0; }

}  // namespace hs
