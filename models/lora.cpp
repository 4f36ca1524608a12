#include "models/lora.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/feed_forward/gelu_feed_forward.h"
#include "kernels/gelu/gelu.h"
#include "kernels/linear/linear.h"

namespace hs {

LoraLinear::LoraLinear(const Tensor& weight) {
  weight_ = weight;
  add_parameter("weight", weight_, ParameterRole::matrix);
}

Tensor LoraLinear::forward(const Tensor& x) {
  Tensor y = linear(x, weight_, {});
  if (!a_.defined()) return y;
  // (..., r). Scaled here, where it is small: a tensor (..., out) less, in both directions.
  const Tensor low = scale(linear(x, a_, {}, WeightOrder::out_in), factor_);
  return add(y, linear(low, b_, {}, WeightOrder::out_in));
}

Tensor gelu_feed_forward(const Tensor& x, LoraLinear& one, LoraLinear& two) {
  if (one.a_.defined() || two.a_.defined()) return two.forward(gelu(one.forward(x)));
  return gelu_feed_forward(x, one.weight_, two.weight_);
}

bool is_adapter(const std::string& parameter) {
  return std::ranges::any_of(lora_names, [&](const std::string& name) { return parameter.ends_with("." + name); });
}

namespace {

// weight (in, out), a (r, in), b (out, r)
Tensor merged(const Tensor& weight, const Tensor& a, const Tensor& b, double factor) {
  const int64_t in = weight.shape()[0], out = weight.shape()[1], rank = a.shape()[0];
  std::vector<float> values = weight.to_vector<float>();
  const std::vector<float> low = a.to_vector<float>(), high = b.to_vector<float>();
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t r = 0; r < rank; ++r) {
        sum += double{high[static_cast<size_t>(o * rank + r)]} * low[static_cast<size_t>(r * in + i)];
      }
      float& value = values[static_cast<size_t>(i * out + o)];
      value = static_cast<float>(value + factor * sum);
    }
  }
  return Tensor::from(values, weight.shape());
}

}  // namespace

std::vector<NamedTensor> merged_parameters(Module& module, const LoraOptions& options) {
  const std::vector<NamedParameter> all = module.parameters();
  const auto find = [&](const std::string& name) {
    const auto found = std::ranges::find(all, name, &NamedParameter::name);
    return found == all.end() ? Tensor() : *found->value;
  };
  std::vector<NamedTensor> tensors;
  for (const NamedParameter& parameter : all) {
    if (is_adapter(parameter.name)) continue;
    const std::string layer = parameter.name.substr(0, parameter.name.rfind('.') + 1);
    const Tensor a = find(layer + lora_names[0]), b = find(layer + lora_names[1]);
    const Tensor value = parameter.value->detach();
    tensors.push_back({parameter.name, a.defined() ? merged(value, a, b, options.factor()) : value.to(Device::cpu)});
  }
  return tensors;
}

}  // namespace hs
