// Which kernels a thread called, and how long each took.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "engine/kernel.h"

namespace hs::bench::measure {

// One call of a slot: which op made it, which variant ran, on elements of which type (that of the first tensor).
struct KernelCall {
  std::string op, slot, variant;
  DType dtype;
  bool operator==(const KernelCall&) const = default;
};

// The same with its measurements.
struct TimedCall {
  KernelCall call;
  std::vector<Shape> shapes;  // of the call's tensors(); an undefined one has no elements: {0}
  double bytes = 0;           // of all of them and the workspace
  double begin = 0, end = 0;  // seconds since the trace began
  // What storages made now would be for: activations within backward() are those of a checkpointed segment, run again.
  MemoryPurpose purpose = MemoryPurpose::other;
  size_t live = 0;  // bytes of all storages on the device after it
};

// While it lives, every call on this thread is noted, at the cost of some strings for each. A timed trace also waits
// for the device before and after each call: nothing overlaps, and the step as a whole takes longer. Calls that a
// kernel makes itself are then part of its own. REQUIRES of a timed one: no step is captured while it lives
class KernelTrace : public Observer {
 public:
  enum Timing : bool { untimed, timed };
  explicit KernelTrace(Timing timing = untimed);
  const std::vector<KernelCall>& calls() const { return calls_; }
  const std::vector<TimedCall>& timed_calls() const { return timed_calls_; }  // empty if untimed
  double now() const;                                                         // seconds since the trace began

  void work_begins(const DeviceWork& work) override;
  void work_ends(const DeviceWork& work, bool failed) override;

 private:
  const Timing timing_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<KernelCall> calls_;
  std::vector<TimedCall> timed_calls_;
  const DeviceWork* timed_now_ = nullptr;
  const Attached attached_;
};

}  // namespace hs::bench::measure
