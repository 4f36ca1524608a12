#include "models/layers.h"

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/linear/linear.h"

namespace hs {

Tensor flatten(const Tensor& x) {
  const Shape& shape = x.shape();
  check(shape.rank() > 0, "flatten: x is {}, expected (N, ...)", shape);
  int64_t rest = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) rest *= shape[axis];
  return x.reshape({shape[0], rest});
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options, LayerKeys& keys, Bias bias)
    : options_(options) {
  const int64_t fan_in = options.kernel_h * options.kernel_w * in_channels;
  const uint32_t layer = keys.next();
  weight_ = uniform_init({fan_in, out_channels}, fan_in, keys.seed(), layer, 0);
  add_parameter("weight", weight_);
  if (bias == Bias::off) return;
  bias_ = uniform_init({out_channels}, fan_in, keys.seed(), layer, 1);
  add_parameter("bias", bias_);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight_, bias_, options_); }

Tensor Conv2d::forward_pool_relu(const Tensor& x, const Dropout* dropout) {
  return conv2d_pool_relu(x, weight_, bias_, options_, dropout ? dropout->rule() : DropoutRule());
}

BatchNorm2d::BatchNorm2d(int64_t channels, const BatchNormOptions& options) : options_(options) {
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  const auto constant = [channels](float value) {
    return Tensor::from(std::vector<float>(static_cast<size_t>(channels), value), {channels});
  };
  weight_ = constant(1), bias_ = constant(0), running_mean_ = constant(0), running_var_ = constant(1);
  add_parameter("weight", weight_);
  add_parameter("bias", bias_);
  add_statistic("running_mean", running_mean_);
  add_statistic("running_var", running_var_);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  return batch_norm2d(x, weight_, bias_, running_mean_, running_var_, options_);
}

Linear::Linear(int64_t in, int64_t out, LayerKeys& keys, Bias bias) {
  const uint32_t layer = keys.next();
  weight_ = uniform_init({in, out}, in, keys.seed(), layer, 0);
  add_parameter("weight", weight_);
  if (bias == Bias::off) return;
  bias_ = uniform_init({out}, in, keys.seed(), layer, 1);
  add_parameter("bias", bias_);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_); }

DropoutRule Dropout::rule() const {
  const Ambient& now = ambient();
  return {now.training ? rate_ : 0, {now.seed, RandomPurpose::dropout, layer_, 0, now.micro_step}, now.step};
}

Tensor Dropout::forward(const Tensor& x) {
  const DropoutRule now = rule();
  return dropout(x, now.rate, now.stream, now.step);
}

}  // namespace hs
