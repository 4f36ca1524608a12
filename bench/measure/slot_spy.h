// SlotSpy: what an op calls a kernel slot with, seen from inside the call, while its tensors live. So a slot can be
// timed by itself on what an op really gives it.
#pragma once

#include <climits>
#include <functional>
#include <string>

#include "engine/kernel.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs::bench::measure {

class SlotSpy {
 public:
  struct Seen {
    const KernelSlot& slot;
    std::string sizes;            // of the call, in words
    CallTensors tensors;          // inputs and outputs
    std::function<void()> again;  // makes the same call
  };
  using Look = std::function<void(const Seen&)>;
  static constexpr int rank = INT_MAX;  // no kernel's

  explicit SlotSpy(KernelSlot& slot_) : slot(slot_) {}
  virtual ~SlotSpy() = default;
  SlotSpy(const SlotSpy&) = delete;
  SlotSpy& operator=(const SlotSpy&) = delete;

  // Until the next watch(), calls of the slot look instead of running a kernel; nothing: they run one. Calls within
  // look() are not seen. Not thread safe, as kernels are not.
  virtual void watch(const Look& look) = 0;

  KernelSlot& slot;
};

// In the words of the tables.
std::string sizes_of(const Gemm& call);
std::string sizes_of(const Conv2dForward& call);
std::string sizes_of(const Conv2dBackward& call);
std::string sizes_of(const MaxPool2dForward& call);
std::string sizes_of(const auto& call) { return call.tensors().front()->shape().to_string(); }

// Its place in the slot is that of a variant, which supports every call while somebody watches.
template <class Call>
class SpyOn : public SlotSpy {
 public:
  explicit SpyOn(Kernel<Call>& slot) : SlotSpy(slot), cpu_(slot, Device::cpu), cuda_(slot, Device::cuda) {}
  void watch(const Look& look) override { look_ = look; }

 private:
  struct Variant : Kernel<Call>::Variant {
    Variant(Kernel<Call>& slot, Device device)
        : Kernel<Call>::Variant(slot, device, "spy",
                                {.run = run, .supported = [](const Call&) { return bool(look_); }, .rank = rank}) {
      slot_ = &slot;
    }
  };
  static void run(const Call& call) {
    const auto tensors = call.tensors();
    const Look look = std::exchange(look_, nullptr);
    look({*slot_, sizes_of(call), tensors, [&] { (*slot_)(call); }});
    look_ = look;
  }
  static inline Look look_;
  static inline Kernel<Call>* slot_ = nullptr;
  Variant cpu_, cuda_;
};

template <class Call>
SlotSpy& spy_on(Kernel<Call>& slot) {
  static SpyOn<Call> spy(slot);
  return spy;
}

}  // namespace hs::bench::measure
