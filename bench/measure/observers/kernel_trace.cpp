#include "bench/measure/observers/kernel_trace.h"

#include "engine/storage.h"

namespace hs::bench::measure {

KernelTrace::KernelTrace(Timing timing)
    : Observer(Event::work, Watch::this_thread),
      timing_(timing),
      start_(std::chrono::steady_clock::now()),
      attached_(*this) {}

double KernelTrace::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

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

}  // namespace hs::bench::measure
