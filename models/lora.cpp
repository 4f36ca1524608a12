#include "models/lora.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear/linear.h"

namespace hs {

Adapters::Adapters(const Shape& weight, const LoraOptions& options, LayerKeys& keys) : factor_(options.factor()) {
  const int64_t in = weight[0], out = weight[1];
  check(options.rank >= 1 && options.rank <= std::min(in, out),
        "LoRA of rank {} for a weight {}: expected a rank from 1 to {}", options.rank, weight, std::min(in, out));
  const MemoryPurposeScope purpose(MemoryPurpose::parameters);
  a = uniform_init({options.rank, in}, in, keys.seed(), keys.next(), 0);
  b = Tensor::zeros({out, options.rank}, DType::f32);
}

Tensor Adapters::add_to(const Tensor& y, const Tensor& x) const {
  // (..., r). Scaled here, where it is small: a tensor (..., out) less, in both directions.
  const Tensor low = scale(linear(x, a, {}, WeightOrder::out_in), factor_);
  return add(y, linear(low, b, {}, WeightOrder::out_in));
}

Tensor Adapters::merged(const Tensor& weight) const {
  const Op op("merged_weight");
  const GemmOptions transposed{.transpose_a = true, .transpose_b = true, .alpha = static_cast<float>(factor_)};
  GemmOptions added = transposed;
  added.beta = 1;
  Tensor sum = weight.detach().clone();
  matmul_into(a, b, added, sum);
  return record("merged_weight", sum, {a, b},
                [a = a.saved(), b = b.saved(), transposed, to_a = GradientTarget(a),
                 to_b = GradientTarget(b)](const Tensor& dweight) -> Gradients {
                  return {matmul_gradient(b, dweight, transposed, to_a), matmul_gradient(dweight, a, transposed, to_b)};
                });
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
    const bool is_weight = parameter.name == layer + "weight";
    const Tensor a = is_weight ? find(layer + lora_names[0]) : Tensor(), b = find(layer + lora_names[1]);
    const Tensor value = parameter.value->detach();
    tensors.push_back({parameter.name, a.defined() ? merged(value, a, b, options.factor()) : value.to(Device::cpu)});
  }
  return tensors;
}

}  // namespace hs
