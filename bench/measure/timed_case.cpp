#include "bench/measure/timed_case.h"

#include <algorithm>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs::bench::measure {
namespace {

std::string sizes_of(const Conv2dSizes& s) {
  return fmt::format("{}x{}x{}x{} {}x{} -> {}", s.N, s.H, s.W, s.C, s.KH, s.KW, s.OC);
}

std::string sizes_of(const Gemm& call) {
  const GemmOptions& options = call.options;
  const int64_t K = call.a.shape()[options.transpose_a ? 0 : 1];
  return fmt::format("{}x{}x{} {}{}", call.c.shape()[0], call.c.shape()[1], K, options.transpose_a ? "T" : "N",
                     options.transpose_b ? "T" : "N");
}

// As the tables print them.
std::string sizes_of(const SpiedCall& seen) {
  if (&seen.slot == &gemm) return sizes_of(*static_cast<const Gemm*>(seen.call));
  if (&seen.slot == &conv2d_forward) return sizes_of(static_cast<const Conv2dForward*>(seen.call)->sizes);
  if (&seen.slot == &conv2d_backward) return sizes_of(static_cast<const Conv2dBackward*>(seen.call)->sizes);
  const std::string first = seen.tensors.front()->shape().to_string();
  if (&seen.slot != &max_pool2d_forward) return first;
  const auto window = static_cast<const MaxPool2dForward*>(seen.call)->window;
  return fmt::format("{}, {}x{}", first, window, window);
}

Tensor cast_to(const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  Tensor y = Tensor::empty(x.shape(), type, x.device());
  cast_forward({x, y});
  return y;
}

// Uniform in [-1, 1), a fraction `zeros` of them 0; the same for every type up to rounding.
Tensor random_numbers(const Shape& shape, uint64_t seed, uint32_t which, double zeros) {
  Tensor x = Tensor::empty(shape, DType::f32);
  float* values = x.mutable_data<float>();
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const bool zero =
        zeros > 0 && to_unit_float(random_bits({2 * seed + 2, RandomPurpose::synthetic, which, 0, 0}, at)) < zeros;
    values[i] =
        zero ? 0 : 2 * to_unit_float(random_bits({2 * seed + 1, RandomPurpose::synthetic, which, 0, 0}, at)) - 1;
  }
  return x;
}

}  // namespace

SlotSpy::SlotSpy(Look look)
    : spy_([look = std::move(look)](const SpiedCall& call) -> const VariantBase& {
        const VariantBase* ran = call.slot.variants();
        look({call.slot, sizes_of(call), call.tensors, [&]() -> const VariantBase& { return *(ran = &call.again()); }});
        return *ran;
      }) {}

std::vector<double> numbers_of(const Tensor& tensor) {
  return cast_to(tensor.to(Device::cpu), DType::f64).to_vector<double>();
}

void run_case(const examples::TimedCase& kernel, DType type, std::optional<DType> rounded, Device device, uint64_t seed,
              const SlotSpy::Look& look) {
  const auto& table = examples::op_table();
  const auto row =
      std::ranges::find_if(table, [&](const auto& each) { return each.name.starts_with(kernel.op + " "); });
  check(row != table.end(), "{}: the op table has no row of this name", kernel.op);
  const AmbientScope scope;
  ambient().recording = true;  // also within a look() at another case's backward pass
  const bool has_16_bits = size_of(type) == 2;
  if (kernel.autocast && has_16_bits) ambient().autocast = type;
  const auto numbers = [&](const Shape& shape, size_t which, double zeros) {
    const DType leaf = type == DType::f64 ? DType::f64 : DType::f32;
    if (!rounded) return Tensor::empty(shape, leaf, device);
    return cast_to(cast_to(random_numbers(shape, seed, static_cast<uint32_t>(which), zeros), *rounded), leaf)
        .to(device);
  };
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < kernel.shapes.size(); ++i) {
    Tensor& input = inputs.emplace_back();
    if (kernel.shapes[i] == Shape{0}) continue;
    input = numbers(kernel.shapes[i], i, 0);
    if (i + kernel.leaves >= kernel.shapes.size()) input.set_requires_grad(true);
    if (has_16_bits && !kernel.autocast) input = cast(input, type);
  }
  const SlotSpy spy([&](const SlotSpy::Seen& seen) {
    if (std::ranges::find(kernel.slots, &seen.slot) != kernel.slots.end()) return look(seen);
    seen.again();
  });
  const Tensor y = row->run(inputs);
  if (y.requires_grad()) backward(y, cast_to(numbers(y.shape(), inputs.size(), kernel.zeros), y.dtype()));
}

bool is_measured(const Tensor& tensor) {
  return tensor.defined() && tensor.dtype() != DType::u8 && tensor.dtype() != DType::i32;
}

std::vector<Output> outputs_of(const SlotSpy::Seen& seen) {
  std::vector<uint64_t> before;
  for (const Tensor* tensor : seen.tensors) before.push_back(tensor->version());
  seen.again();
  std::vector<Output> outputs;
  for (size_t i = 0; i < before.size(); ++i) {
    const Tensor& tensor = *seen.tensors[i];
    if (is_measured(tensor) && tensor.version() != before[i]) outputs.push_back({i, numbers_of(tensor)});
  }
  return outputs;
}

}  // namespace hs::bench::measure
