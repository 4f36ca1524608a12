#include "bench/measure/timed_case.h"

#include <algorithm>
#include <cmath>

#include "engine/slots.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/examples/checks.h"
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

Snapshot::Bytes bytes_of(const Tensor& tensor) {
  if (tensor.bytes() == 0) return {};
  const Tensor host = tensor.to(Device::cpu);
  const auto* begin = static_cast<const unsigned char*>(host.raw_data());
  return {begin, begin + host.bytes()};
}

}  // namespace

SlotSpy::SlotSpy(Look look)
    : spy_([look = std::move(look)](const SpiedCall& call) -> const VariantBase& {
        const VariantBase* ran = call.slot.variants();
        look({call.slot, sizes_of(call), call.tensors, [&]() -> const VariantBase& { return *(ran = &call.again()); }});
        return *ran;
      }) {}

void run_case(const examples::TimedCase& kernel, DType type, DType rounded, Device device, const SlotSpy::Look& look) {
  examples::RowRun how = examples::timed_run(kernel, device, type);
  how.numbers = rounded;
  const SlotSpy spy([&](const SlotSpy::Seen& seen) {
    if (std::ranges::find(kernel.slots, &seen.slot) != kernel.slots.end()) return look(seen);
    seen.again();
  });
  examples::run_row(examples::row_of(kernel), how);
}

bool is_measured(const Tensor& tensor) {
  return tensor.defined() && tensor.dtype() != DType::u8 && tensor.dtype() != DType::i32;
}

Snapshot::Snapshot(CallTensors tensors) : tensors_(tensors) {
  for (const Tensor* tensor : tensors) before_.push_back({*tensor, tensor->version(), bytes_of(*tensor)});
}

std::vector<Snapshot::Bytes> Snapshot::written() const {
  const auto described = [](const Tensor& tensor) { return tensor.defined() ? tensor.to_string() : "nothing"; };
  std::vector<Bytes> all(before_.size());
  for (size_t i = 0; i < before_.size(); ++i) {
    const Tensor &now = *tensors_[i], &then = before_[i].tensor;
    if (described(now) != described(then) || (now.bytes() > 0 && now.raw_data() != then.raw_data())) {
      throw Refusal("tensors", fmt::format("it puts another tensor into the call, {} for tensor {}, {}", described(now),
                                           i, described(then)));
    }
    Bytes bytes = bytes_of(now);
    if (now.version() != before_[i].version) {
      all[i] = std::move(bytes);
    } else if (bytes != before_[i].bytes) {
      throw Refusal("inputs",
                    fmt::format("it changes tensor {} of the call, {}, which it only reads", i, described(now)));
    }
  }
  return all;
}

void Snapshot::restore() const {
  for (const Before& one : before_) {
    if (one.bytes.empty()) continue;
    runtime(one.tensor.device())
        .copy(const_cast<void*>(one.tensor.raw_data()), one.bytes.data(), one.bytes.size(), CopyDirection::to_device);
  }
}

std::vector<Output> outputs_of(const SlotSpy::Seen& seen) {
  std::vector<uint64_t> before;
  for (const Tensor* tensor : seen.tensors) before.push_back(tensor->version());
  seen.again();
  std::vector<Output> outputs;
  for (size_t i = 0; i < before.size(); ++i) {
    const Tensor& tensor = *seen.tensors[i];
    if (is_measured(tensor) && tensor.version() != before[i])
      outputs.push_back({i, examples::to_numbers(tensor.to(Device::cpu))});
  }
  return outputs;
}

examples::Comparison compare(const std::vector<Output>& got, const std::vector<Output>& reference, DType type) {
  std::vector<double> numbers, expected;
  for (size_t i = 0; i < reference.size() && got.size() == reference.size(); ++i) {
    for (size_t j = 0; j < reference[i].numbers.size(); ++j) {
      const double one = got[i].numbers.at(j), other = reference[i].numbers[j];
      if (!std::isfinite(one) && !std::isfinite(other)) continue;
      numbers.push_back(one);
      expected.push_back(other);
    }
  }
  if (got.size() != reference.size()) expected.push_back(NAN);  // a tensor that one of them does not write
  return examples::compare(numbers, expected, examples::tolerance::call_in(type));
}

}  // namespace hs::bench::measure
