// SlotSpy: intercepts an op's calls of its kernel slots while their tensors are alive, so that a slot can be timed in
// isolation on the arguments that the op really passes.
#pragma once

#include <climits>
#include <functional>
#include <string>
#include <utility>

#include "engine/kernel.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs::bench::measure {

// While one is alive, calls of spied() slots call look() instead of running a kernel; calls within look() run a kernel.
// At most one at a time; not thread safe, like kernels.
class SlotSpy {
 public:
  struct Seen {
    const KernelSlot& slot;
    std::string sizes;            // of the call, in words
    CallTensors tensors;          // inputs and outputs
    std::function<void()> again;  // makes the same call
  };
  using Look = std::function<void(const Seen&)>;
  static constexpr int rank = INT_MAX;  // of the spy's variants; no kernel has it

  explicit SlotSpy(Look look) { look_ = std::move(look); }
  ~SlotSpy() { look_ = nullptr; }
  SlotSpy(const SlotSpy&) = delete;
  SlotSpy& operator=(const SlotSpy&) = delete;

  static bool is_looking() { return bool(look_); }
  static void look(const Seen& seen) {
    const Look look = std::exchange(look_, nullptr);
    look(seen);
    look_ = look;
  }

 private:
  static inline Look look_;
};

// As the tables print them.
std::string sizes_of(const Gemm& call);
std::string sizes_of(const Conv2dForward& call);
std::string sizes_of(const Conv2dBackward& call);
std::string sizes_of(const MaxPool2dForward& call);
std::string sizes_of(const auto& call) { return call.tensors().front()->shape().to_string(); }

// Adds the spy's variants to a slot, once per slot: they support every call while a SlotSpy is alive.
template <class Call>
KernelSlot* spied(Kernel<Call>& given) {
  using Variant = typename Kernel<Call>::Variant;
  static Kernel<Call>& slot = given;
  const auto run = [](const Call& call) {
    const auto tensors = call.tensors();
    SlotSpy::look({slot, sizes_of(call), tensors, [&] { slot(call); }});
  };
  const typename Kernel<Call>::Options options = {
      .run = +run, .supported = [](const Call&) { return SlotSpy::is_looking(); }, .rank = SlotSpy::rank};
  static const Variant cpu(slot, Device::cpu, "spy", options), cuda(slot, Device::cuda, "spy", options);
  return &slot;
}

}  // namespace hs::bench::measure
