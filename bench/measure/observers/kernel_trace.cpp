#include "bench/measure/observers/kernel_trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/storage.h"

// The emulator's, where there is one.
extern "C" [[gnu::weak]] bool hs_emulator_memory_counts(uint64_t (&totals)[5]);

namespace hs::bench::measure {

std::optional<MemoryCounts> memory_counts(const std::optional<MemoryCounts>& before) {
  uint64_t now[5] = {};
  if (!before || !hs_emulator_memory_counts || !hs_emulator_memory_counts(now)) return {};
  return MemoryCounts{now[0] - before->requests, now[1] - before->sectors, now[2] - before->bytes_used,
                      now[3] - before->bank_conflicts, now[4] - before->divergent};
}

double flops_of(std::string_view slot, std::span<const Shape> shapes) {
  const auto size = [&](size_t i) { return static_cast<double>(shapes[i].size()); };
  if (slot == "gemm") {  // a, b, ..., c
    const double M = static_cast<double>(shapes.back()[0]);
    return M > 0 ? 2 * size(0) / M * size(shapes.size() - 1) : 0;  // 2 K times the elements of C
  }
  // Each element of the result is a sum over the rows of the weight.
  const auto rows = [&](size_t weight) { return static_cast<double>(shapes[weight][0]); };
  if (slot == "conv2d_forward") return 2 * rows(1) * size(3);  // x, weight, bias, y
  if (slot == "conv2d_backward") {                             // x, weight, dy, dx, dweight, dbias
    return 2 * rows(1) * size(2) * ((size(3) > 0 ? 1 : 0) + (size(4) > 0 ? 1 : 0));
  }
  // The products of the four pixels of each pooled value; backward needs only those of the one that won.
  if (slot == "conv2d_pool_relu_forward") return 4 * 2 * rows(1) * size(3);  // x, weight, bias, y, winner
  if (slot == "conv2d_pool_relu_backward") {  // x, weight, winner, dy, dx, dweight, dbias
    return 2 * rows(1) * size(3) * ((size(4) > 0 ? 1 : 0) + (size(5) > 0 ? 1 : 0));
  }
  // qkv (B, T, 3C), log_sums, y or dy: two products, or five, of C multiply-adds for each query and key up to it.
  if (slot == "causal_attention_forward" || slot == "causal_attention_backward") {
    const double products = slot == "causal_attention_forward" ? 2 : 5;
    return products * size(2) * static_cast<double>(shapes[0][1] + 1);
  }
  // x (N, in), weight1, weight2, ...: a product with each; backward the gradients of x, weight1 and weight2, and of h.
  const auto product = [&](size_t weight) { return 2 * static_cast<double>(shapes[0][0]) * size(weight); };
  if (slot == "gelu_feed_forward_forward") return product(1) + product(2);
  if (slot == "gelu_feed_forward_backward") {  // ..., dx, dweight1, dweight2
    return product(1) * ((size(5) > 0 ? 1 : 0) + (size(6) > 0 ? 1 : 0)) + product(2) * (size(7) > 0 ? 2 : 1);
  }
  return 0;
}

KernelTrace::KernelTrace(Timing timing)
    : Observer(Event::work, Watch::this_thread), timing_(timing), attached_(*this) {}

void KernelTrace::work_begins(const DeviceWork& work) {
  if (work.tensors.empty()) return;  // no kernel
  calls_.push_back({Op::current(), work.name, work.variant, work.tensors.front()->dtype()});
  if (timing_ == untimed || timed_now_) return;
  runtime(work.device).synchronize();
  timed_now_ = &work;
  TimedCall& one = timed_calls_.emplace_back();
  one.call = calls_.back();
  one.purpose = MemoryPurposeScope::current();
  if (work.device != Device::cpu) one.counts = memory_counts();
  one.begin = now();
}

void KernelTrace::work_ends(const DeviceWork& work, bool failed) {
  if (timed_now_ != &work) return;
  timed_now_ = nullptr;
  if (failed) {
    timed_calls_.pop_back();
    return;
  }
  runtime(work.device).synchronize();
  TimedCall& one = timed_calls_.back();
  one.end = now();
  one.counts = memory_counts(one.counts);
  one.live = memory_stats(work.device).live;
  const auto bytes = [](const Tensor& tensor) {
    return tensor.defined() ? static_cast<double>(tensor.size()) * static_cast<double>(size_of(tensor.dtype())) : 0;
  };
  for (const Tensor* tensor : work.tensors) {
    one.shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
    one.bytes += bytes(*tensor);
  }
  one.bytes += bytes(*work.workspace);
}

std::string use_of_16_bits(const KernelTrace& trace) {
  // Tensor cores, AMX, dot products of bf16 pairs, f16 vectors: a variant is named after the one that it uses.
  constexpr std::string_view all[] = {"cublaslt", "mma", "wmma", "amx", "avx512_bf16", "avx512_fp16", "neon"};
  std::set<std::string> kernels, narrow, units;
  for (const KernelCall& call : trace.calls()) {
    kernels.insert(call.slot);
    if (call.dtype == DType::f32) continue;
    narrow.insert(call.slot);
    if (std::ranges::any_of(all, [&](auto one) { return call.variant.starts_with(one); })) units.insert(call.variant);
  }
  return fmt::format("{} of {} kernels of a step take 16 bits, {}", narrow.size(), kernels.size(),
                     units.empty() ? "none by a unit that multiplies them: they save memory here, not much time"
                                   : fmt::format("the products by {}", fmt::join(units, ", ")));
}

}  // namespace hs::bench::measure
