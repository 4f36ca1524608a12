// Kernel slots: a typed function name that several implementations, "variants", fill per device.
//
//   // kernels/relu.h
//   constinit inline Kernel<void(const Tensor& x, Tensor& y)> relu_forward{"relu_forward"};
//   // kernels/relu.cpp
//   REGISTER_KERNEL(relu_forward, cpu, "simple", {.run = relu_forward_cpu});
//   // anywhere
//   relu_forward(x, y);
//
// A call takes the variant of highest rank that supports the arguments, on the device of the first defined tensor, or
// the one that force_variant() names. Slots are constant-initialised, so the order of static objects does not matter.
// Link the registering objects directly: from a static archive the linker drops them silently (docs/add_a_kernel.md).
// Kernels get const Tensor& inputs and Tensor& outputs, return void and never allocate: what they need beside their
// outputs they ask for in `workspace` and get as a tensor of bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/device.h"
#include "engine/error.h"
#include "engine/profiler.h"
#include "engine/tensor.h"

namespace hs {

class KernelSlot;
class KernelTrace;

struct VariantBase {
  const char* name = nullptr;
  Device device = Device::cpu;
  int rank = 0;
  uint64_t calls = 0;
  VariantBase* next = nullptr;  // in falling rank, then by name
};

// The part of a slot that does not depend on its signature: what `info`, --kernel and the tests see.
class KernelSlot {
 public:
  constexpr explicit KernelSlot(const char* name) : name_(name) {}
  KernelSlot(const KernelSlot&) = delete;
  KernelSlot& operator=(const KernelSlot&) = delete;

  const char* name() const { return name_; }
  const VariantBase* variants() const { return variants_; }
  KernelSlot* next_slot() const { return next_slot_; }

  // Only this variant is used from now on; nullptr: the best one again. Throws Error (usage) on an unknown name.
  void force(const char* variant);

 protected:
  void add(VariantBase& variant);
  bool is_candidate(const VariantBase& variant, Device device) const;
  static bool is_traced() { return trace_ != nullptr; }
  static bool is_timed();  // REQUIRES: is_traced()
  void note_call(const VariantBase& variant, DType dtype) const;
  static void begin_timing(Device device);
  static void end_timing(Device device, const std::vector<const Tensor*>& tensors);
  [[noreturn]] void fail_unsupported(Device device, const std::string& arguments) const;
  [[noreturn]] void fail_on_device(const VariantBase& variant, const std::string& arguments, const Error& error) const;

  VariantBase* variants_ = nullptr;

 private:
  friend class KernelTrace;
  static inline thread_local KernelTrace* trace_ = nullptr;
  const char* name_;
  const char* forced_ = nullptr;  // points into the forced variant
  KernelSlot* next_slot_ = nullptr;
};

// Every slot with at least one variant, sorted by name.
std::vector<KernelSlot*> kernel_slots();

// What a kernel chose by itself at run time and a reader of its results wants to know (a library's algorithm for a
// shape), by name. Thread safe.
void note_choice(const std::string& what, const std::string& choice);
std::map<std::string, std::string> noted_choices();

// One call of a slot: which op made it, which variant ran, on elements of which type (that of the first tensor).
struct KernelCall {
  std::string op, slot, variant;
  DType dtype;
  bool operator==(const KernelCall&) const = default;
};

// The same with its measurements.
struct TimedCall {
  KernelCall call;
  std::vector<Shape> shapes;  // of every tensor argument, in order; an undefined one has no elements: {0}
  double bytes = 0;           // of all of them
  double begin = 0, end = 0;  // seconds since the trace began
  // What storages made now would be for: activations within backward() are those of a checkpointed segment, run again.
  MemoryPurpose purpose = MemoryPurpose::other;
  size_t live = 0;  // bytes of all storages on the device after it
};

// While it lives, every call on this thread is noted. For reports; costs some strings for each call. A timed trace also
// waits for the device before and after each call: nothing overlaps, and the step as a whole takes longer. It must not
// live while a step is captured.
class KernelTrace {
 public:
  enum Timing : bool { untimed, timed };
  explicit KernelTrace(Timing timing = untimed);
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;
  const std::vector<KernelCall>& calls() const { return calls_; }
  const std::vector<TimedCall>& timed_calls() const { return timed_calls_; }  // empty if untimed
  double now() const;                                                         // seconds since the trace began

 private:
  friend class KernelSlot;
  const Timing timing_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<KernelCall> calls_;
  std::vector<TimedCall> timed_calls_;
  KernelTrace* before_;
};

// "conv2d_forward=im2col", as --kernel takes it; throws Error (usage) with the names that exist.
void force_variant(std::string_view assignment);

template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Args...)> : public KernelSlot {
 public:
  using KernelSlot::KernelSlot;

  struct Options {
    void (*run)(Args...) = nullptr;
    bool (*supported)(Args...) = nullptr;     // none: every call
    int64_t (*workspace)(Args...) = nullptr;  // bytes; none: 0
    int rank = 0;                             // higher is tried first; "simple" variants have 0
  };

  struct Variant : VariantBase {
    Options options;
    Variant(Kernel& slot, Device on, const char* called, const Options& given) : options(given) {
      name = called;
      device = on;
      rank = given.rank;
      slot.add(*this);
    }
  };

  void operator()(Args... args) {
    Variant& variant = select(args...);
    ++variant.calls;
    const DeviceRange range(variant.device, Stream::compute, name(), variant.name);
    try {
      if (is_traced()) {
        run_traced(variant, args...);
      } else {
        variant.options.run(args...);
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::device) throw;
      std::string arguments;
      (describe(arguments, args), ...);
      fail_on_device(variant, arguments, error);
    }
  }

  // Bytes of scratch memory that the call with these arguments wants; outputs may be undefined here.
  int64_t workspace(Args... args) {
    Variant& variant = select(args...);
    return variant.options.workspace ? variant.options.workspace(args...) : 0;
  }

 private:
  Variant& select(Args... args) {
    const Device device = device_of_first(args...);
    for (VariantBase* base = variants_; base; base = base->next) {
      Variant& variant = static_cast<Variant&>(*base);
      if (is_candidate(variant, device) && (!variant.options.supported || variant.options.supported(args...))) {
        return variant;
      }
    }
    std::string arguments;
    (describe(arguments, args), ...);
    fail_unsupported(device, arguments);
  }

  void run_traced(Variant& variant, Args... args) {
    note_call(variant, dtype_of_first(args...));
    if (!is_timed()) return variant.options.run(args...);
    begin_timing(variant.device);
    variant.options.run(args...);
    std::vector<const Tensor*> tensors;
    (collect(tensors, args), ...);
    end_timing(variant.device, tensors);
  }

  template <class First, class... Rest>
  static Device device_of_first(const First& first, const Rest&... rest) {
    if constexpr (!std::is_same_v<First, Tensor>) {
      return device_of_first(rest...);
    } else if constexpr ((std::is_same_v<Rest, Tensor> || ...)) {
      return first.defined() ? first.device() : device_of_first(rest...);
    } else {
      return first.device();
    }
  }
  template <class First, class... Rest>
  static DType dtype_of_first(const First& first, const Rest&... rest) {
    if constexpr (std::is_same_v<First, Tensor>) {
      return first.dtype();
    } else {
      return dtype_of_first(rest...);
    }
  }
  static void describe(std::string& text, const Tensor& tensor) {
    if (!tensor.defined()) return;
    text += std::string(text.empty() ? "" : ", ") + hs::name(tensor.dtype()) + tensor.shape().to_string();
  }
  template <class Other>
  static void describe(std::string&, const Other&) {}

  static void collect(std::vector<const Tensor*>& tensors, const Tensor& tensor) { tensors.push_back(&tensor); }
  template <class Other>
  static void collect(std::vector<const Tensor*>&, const Other&) {}
};

#define HS_CONCAT_(a, b) a##b
#define HS_CONCAT(a, b) HS_CONCAT_(a, b)
// REGISTER_KERNEL(slot, cpu, "name", {.run = function, .supported = ..., .workspace = ..., .rank = ...});
#define REGISTER_KERNEL(slot, device, variant, ...)                                           \
  [[maybe_unused]] static decltype(slot)::Variant HS_CONCAT(registered_##slot##_, __LINE__) { \
    slot, ::hs::Device::device, variant, decltype(slot)::Options __VA_ARGS__                  \
  }

}  // namespace hs
