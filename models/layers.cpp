#include "models/layers.h"

#include <cmath>
#include <optional>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/checkpoint.h"
#include "engine/random.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/linear/linear.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"
#include "models/lora.h"

namespace hs {

Tensor flatten(const Tensor& x) {
  check(x.shape().rank() > 0, "flatten: x is {}, expected (N, ...)", x.shape());
  return x.reshape({x.shape()[0], x.shape().size(1, x.shape().rank())});
}

namespace {

// Normal with this variance, without what lies beyond two deviations; `deviation` allows for what is cut off.
Tensor truncated_normal_init(const Shape& shape, double variance, uint64_t seed, uint32_t layer) {
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  constexpr double of_truncated = 0.87962566103423978;  // the deviation of a standard normal that is cut at 2
  const double deviation = std::sqrt(variance) / of_truncated;
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    double normal = 3;
    for (uint32_t attempt = 0; std::fabs(normal) > 2; ++attempt) {
      const Random4 random = random_block({seed, RandomPurpose::init, layer, 0, attempt}, static_cast<uint32_t>(i));
      normal = normal_number(1, random.word[0], random.word[1]);
    }
    values[i] = static_cast<float>(deviation * normal);
  }
  return Tensor::from(values, shape);
}

Tensor initial_weight(Init init, const Shape& shape, uint64_t seed, uint32_t layer) {
  check(shape.size() > 0, "a layer: its weight is {}, expected at least one input and one output", shape);
  const int64_t fan_in = shape[0];
  if (init == Init::uniform) return uniform_init(shape, fan_in, seed, layer, 0);
  return truncated_normal_init(shape, 2 / static_cast<double>(fan_in), seed, layer);
}

Tensor initial_bias(Init init, int64_t size, int64_t fan_in, uint64_t seed, uint32_t layer) {
  if (init == Init::uniform) return uniform_init({size}, fan_in, seed, layer, 1);
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  return Tensor::zeros({size}, DType::f32);
}

}  // namespace

void WeightLayer::adapt(const LoraOptions& options, LayerKeys& keys) {
  check(!adapters_, "adapt: the layer has adapters already, expected none; export the model with them, and adapt that");
  adapters_ = std::make_shared<Adapters>(weight_.shape(), options, keys);
  add_parameter(lora_names[0], adapters_->a, ParameterRole::adapter);
  add_parameter(lora_names[1], adapters_->b, ParameterRole::adapter);
}

Tensor WeightLayer::weight() const { return adapters_ ? adapters_->merged(weight_) : weight_; }

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options, LayerKeys& keys, Bias bias,
               Init init)
    : options_(options) {
  const int64_t fan_in = options.kernel_h * options.kernel_w * in_channels;
  const uint32_t layer = keys.next();
  weight_ = initial_weight(init, {fan_in, out_channels}, keys.seed(), layer);
  add_parameter("weight", weight_, ParameterRole::matrix);
  if (bias == Bias::off) return;
  bias_ = initial_bias(init, out_channels, fan_in, keys.seed(), layer);
  add_parameter("bias", bias_, ParameterRole::bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight(), bias_, options_); }

Tensor Conv2d::forward_relu(const Tensor& x) { return conv2d_relu(x, weight(), bias_, options_); }

Tensor Conv2d::forward_pool_relu(const Tensor& x, Dropout* dropout) {
  if (ambient().fuse) return conv2d_pool_relu(x, weight(), bias_, options_, dropout ? dropout->rule() : DropoutRule());
  const Tensor y = relu(max_pool2d(forward(x), 2, 2));
  return dropout ? dropout->forward(y) : y;
}

BatchNorm2d::BatchNorm2d(int64_t channels, const BatchNormOptions& options) : options_(options) {
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  const auto constant = [channels](float value) {
    return Tensor::from(std::vector<float>(static_cast<size_t>(channels), value), {channels});
  };
  weight_ = constant(1), bias_ = constant(0), running_mean_ = constant(0), running_var_ = constant(1);
  add_parameter("weight", weight_, ParameterRole::norm);
  add_parameter("bias", bias_, ParameterRole::norm);
  add_statistic("running_mean", running_mean_);
  add_statistic("running_var", running_var_);
}

Tensor BatchNorm2d::forward(const Tensor& x) { return forward(x, {}); }

Tensor BatchNorm2d::forward(const Tensor& x, const Tensor& residual) {
  std::optional<AmbientScope> frozen;
  if (!weight_.requires_grad()) frozen.emplace(), ambient().training = false;
  return batch_norm2d(x, weight_, bias_, running_mean_, running_var_, options_, residual);
}

Linear::Linear(int64_t in, int64_t out, LayerKeys& keys, Bias bias, Init init, ParameterRole role) {
  const uint32_t layer = keys.next();
  weight_ = initial_weight(init, {in, out}, keys.seed(), layer);
  add_parameter("weight", weight_, role);
  if (bias == Bias::off) return;
  bias_ = initial_bias(init, out, in, keys.seed(), layer);
  add_parameter("bias", bias_, ParameterRole::bias);
}

Linear::Linear(const Tensor& weight) {
  weight_ = weight;
  add_parameter("weight", weight_, ParameterRole::matrix);
}

Tensor Linear::forward(const Tensor& x) {
  const Tensor y = linear(x, weight_, bias_);
  return adapters_ ? adapters_->add_to(y, x) : y;
}

DropoutRule Dropout::rule() const {
  const Ambient& now = ambient();
  return {now.training ? rate_ : 0,
          {.seed = now.seed, .purpose = RandomPurpose::dropout, .layer = layer_, .micro_step = now.micro_step},
          now.step};
}

Tensor Dropout::forward(const Tensor& x) {
  const DropoutRule now = rule();
  return dropout(x, now.rate, now.stream, now.step);
}

void StagedModel::add_stage(std::string name, std::function<Tensor(const Tensor&)> forward) {
  stages_.push_back({std::move(name), std::move(forward)});
}

void StagedModel::set_segments(std::vector<Segment> segments) {
  size_t position = 0;
  for (const Segment& s : segments) {
    check(position <= s.begin && s.begin < s.end && s.end <= stages_.size(),
          "set_segments: stages {} to {} after stage {} of {}; expected segments in order, not empty and apart",
          s.begin, s.end, position, stages_.size());
    position = s.end;
  }
  segments_ = std::move(segments);
}

void StagedModel::adapt(const LoraOptions& options, LayerKeys& keys, Freeze frozen) {
  freeze(frozen);
  const int64_t trained = parameter_count();
  visit([&](Module& module) {
    auto* const layer = dynamic_cast<WeightLayer*>(&module);
    if (layer && !layer->parameters().front().is_head) layer->adapt(options, keys);
  });
  check(parameter_count() > trained, "this model has no layer that takes adapters; Linear and Conv2d do");
}

Tensor StagedModel::run(size_t begin, size_t end, const Tensor& x) const {
  Tensor y = x;
  for (size_t i = begin; i < end; ++i) y = stages_[i].forward(y);
  return y;
}

Tensor StagedModel::forward(const Tensor& x) {
  Tensor y = x;
  size_t position = 0;
  for (const Segment& s : segments_) {
    y = run(position, s.begin, y);
    y = checkpoint([this, s](const Tensor& input) { return run(s.begin, s.end, input); }, y);
    position = s.end;
  }
  return run(position, stages_.size(), y);
}

}  // namespace hs
