#include "models/layers.h"

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/dropout.h"
#include "kernels/linear.h"

namespace hs {

Tensor flatten(const Tensor& x) {
  const Shape& shape = x.shape();
  check(shape.rank() > 0, "flatten: x is {}, expected (N, ...)", shape.to_string());
  int64_t rest = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) rest *= shape[axis];
  return x.reshape({shape[0], rest});
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options, uint64_t seed, uint32_t layer)
    : options_(options) {
  const int64_t fan_in = options.kernel_h * options.kernel_w * in_channels;
  weight_ = uniform_init({fan_in, out_channels}, fan_in, seed, layer, 0);
  bias_ = uniform_init({out_channels}, fan_in, seed, layer, 1);
  add_parameter("weight", weight_);
  add_parameter("bias", bias_);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight_, bias_, options_); }

Linear::Linear(int64_t in, int64_t out, uint64_t seed, uint32_t layer) {
  weight_ = uniform_init({in, out}, in, seed, layer, 0);
  bias_ = uniform_init({out}, in, seed, layer, 1);
  add_parameter("weight", weight_);
  add_parameter("bias", bias_);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_); }

Tensor Dropout::forward(const Tensor& x) {
  const Ambient& now = ambient();
  if (!now.training) return x;
  return dropout(x, rate_, {now.seed, RandomPurpose::dropout, layer_, 0, now.micro_step}, now.step);
}

}  // namespace hs
