// SlotSpy: intercepts an op's calls of its kernel slots while their tensors are alive, so that a slot can be timed in
// isolation on the arguments that the op really passes.
#pragma once

#include <functional>
#include <string>

#include "engine/kernel.h"

namespace hs::bench::measure {

// While one is alive, kernel calls of ops call look() instead of running a kernel; calls within look() run a kernel. An
// op gets what the last call within look() returned, or if there is none the slot's first variant. At most one at a
// time; not thread safe, like kernels.
class SlotSpy {
 public:
  struct Seen {
    const KernelSlot& slot;
    std::string sizes;                          // of the call, in words
    CallTensors tensors;                        // inputs and outputs
    std::function<const VariantBase&()> again;  // makes the same call; returns the variant that ran
  };
  using Look = std::function<void(const Seen&)>;

  explicit SlotSpy(Look look);

 private:
  const KernelSpy spy_;
  const SpyScope scope_{&spy_};
};

}  // namespace hs::bench::measure
