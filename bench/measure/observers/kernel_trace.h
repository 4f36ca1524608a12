// KernelTrace: the kernels that a thread called, how long each took, and how much it did.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"

namespace hs::bench::measure {

// What kernels ask of memory, and where their warps part, where the device is emulated and counts
// (docs/cuda_without_a_gpu.md).
struct MemoryCounts {
  uint64_t requests = 0;        // loads and stores of warps in global memory
  uint64_t sectors = 0;         // of 32 bytes, that they touch
  uint64_t bytes_used = 0;      // of them, those that some lane asked for
  uint64_t bank_conflicts = 0;  // in shared memory
  uint64_t divergent = 0;       // branches at which a warp's lanes parted
};
// Of all kernels so far, less `before`; nothing where none are counted.
std::optional<MemoryCounts> memory_counts(const std::optional<MemoryCounts>& before = MemoryCounts{});

// One call of a slot: the calling op, the variant that ran, and the type of the first tensor.
struct KernelCall {
  std::string op, slot, variant;
  DType dtype;
  bool operator==(const KernelCall&) const = default;
};

// A call with its measurements.
struct TimedCall {
  KernelCall call;
  std::vector<Shape> shapes;  // of the call's tensors(); an undefined one has no elements: {0}
  double bytes = 0;           // of all tensors and the workspace
  double begin = 0, end = 0;  // seconds since the trace began
  // Purpose of storages allocated in the call: within backward(), activations are those of a recomputed segment.
  MemoryPurpose purpose = MemoryPurpose::other;
  size_t live = 0;  // bytes of all storages on the device after the call
  std::optional<MemoryCounts> counts = {};
};

// Operations of a matrix product or a convolution, with a multiply-add as two; 0 for kernels that only move bytes.
// shapes: of the call's tensors(); an undefined tensor has no elements.
double flops_of(std::string_view slot, std::span<const Shape> shapes);
inline double flops_of(const TimedCall& call) { return flops_of(call.call.slot, call.shapes); }

// While it is alive, every call on this thread is recorded, at the cost of a few strings per call. A timed trace also
// waits for the device before and after each call: nothing overlaps, so the whole step takes longer, and calls that a
// kernel makes itself count as part of its call. REQUIRES if timed: no step is captured while it is alive
class KernelTrace : public Observer {
 public:
  enum Timing : bool { untimed, timed };
  explicit KernelTrace(Timing timing = untimed);
  const std::vector<KernelCall>& calls() const { return calls_; }
  const std::vector<TimedCall>& timed_calls() const { return timed_calls_; }  // empty if untimed
  // Seconds since the trace began.
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  void work_begins(const DeviceWork& work) override;
  void work_ends(const DeviceWork& work, bool failed) override;

 private:
  const Timing timing_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<KernelCall> calls_;
  std::vector<TimedCall> timed_calls_;
  const DeviceWork* timed_now_ = nullptr;
  const Attached attached_;
};

// In words: how many kernels of a traced step took 16 bits, and whether this machine gains time by it.
std::string use_of_16_bits(const KernelTrace& trace);

}  // namespace hs::bench::measure
