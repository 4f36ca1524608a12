// Kernel slots: a named function that several implementations, "variants", fill per device. What a call takes is a
// struct with named fields, inputs const, outputs not; tensors() lists its tensors, inputs first.
//
//   // kernels/relu/relu.h
//   struct ReluForward {
//     const Tensor& x;
//     Tensor& y;
//     auto tensors() const { return tensor_list(x, y); }
//   };
//   constinit inline Kernel<ReluForward> relu_forward{"relu_forward"};
//   // kernels/relu/relu.cpp
//   void relu_forward_cpu(const ReluForward& call) { ... }
//   REGISTER_KERNEL(relu_forward, cpu, "simple", {.run = relu_forward_cpu});
//   // anywhere
//   relu_forward({x, y});
//
// A call selects the variant of highest rank that supports it on the device of its first defined tensor, or the one
// that force_variant() names, allocates the workspace that this variant asks for, and runs it. Kernels return nothing
// and never allocate. Slots are constant-initialised, so the order of static objects does not matter. Link the
// registering objects directly: from a static archive the linker drops them silently (docs/add_a_kernel.md). Not thread
// safe: one thread at a time calls kernels.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device.h"
#include "engine/error.h"
#include "engine/profiler.h"
#include "engine/tensor.h"

namespace hs {

class KernelSlot;
class KernelTrace;

// The tensors of a call, inputs first; some may be undefined.
using CallTensors = std::span<const Tensor* const>;
constexpr auto tensor_list(const auto&... tensors) {
  return std::array<const Tensor*, sizeof...(tensors)>{&tensors...};
}
// What an optional tensor of a call is when it is left out: undefined. A kernel leaves it so.
inline Tensor& no_tensor() {
  static thread_local Tensor undefined;
  return undefined;
}

struct VariantBase {
  const char* name = nullptr;
  Device device = Device::cpu;
  int rank = 0;
  const char* layout = nullptr;  // of what it keeps for backward, if only this layout's variants can read it
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
  bool is_candidate(const VariantBase& variant, Device device, const char* layout) const;
  static Device device_of(CallTensors tensors);  // of the first that is defined
  static bool is_traced() { return trace_ != nullptr; }
  bool begin_trace(const VariantBase& variant, CallTensors tensors) const;  // true: is timed
  static void end_timing(const VariantBase& variant, CallTensors tensors, const Tensor& workspace);
  static void drop_timing();  // of a call that failed
  [[noreturn]] void fail_unsupported(Device device, CallTensors tensors, const char* layout) const;
  [[noreturn]] void fail_on_device(const VariantBase& variant, CallTensors tensors, const Error& error) const;

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
  std::vector<Shape> shapes;  // of the call's tensors(); an undefined one has no elements: {0}
  double bytes = 0;           // of all of them and the workspace
  double begin = 0, end = 0;  // seconds since the trace began
  // What storages made now would be for: activations within backward() are those of a checkpointed segment, run again.
  MemoryPurpose purpose = MemoryPurpose::other;
  size_t live = 0;  // bytes of all storages on the device after it
};

// While it lives, every call on this thread is noted. For reports; costs some strings for each call. A timed trace also
// waits for the device before and after each call: nothing overlaps, and the step as a whole takes longer. Calls that a
// kernel makes itself are then part of its own. It must not live while a step is captured.
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
  bool timing_call_ = false;
  KernelTrace* before_;
};

// "conv2d_forward=im2col"; throws Error (usage) with the names that exist.
void force_variant(std::string_view assignment);

template <class Call>
class Kernel : public KernelSlot {
 public:
  using KernelSlot::KernelSlot;

  // What a variant runs: a function of the call, or of the call and the workspace that the variant asked for.
  struct Function {
    constexpr Function(void (*function)(const Call&)) : plain(function) {}
    constexpr Function(void (*function)(const Call&, Tensor& workspace)) : with_workspace(function) {}
    void (*plain)(const Call&) = nullptr;
    void (*with_workspace)(const Call&, Tensor& workspace) = nullptr;
  };

  struct Options {
    Function run;
    bool (*supported)(const Call&) = nullptr;     // none: every call
    int64_t (*workspace)(const Call&) = nullptr;  // bytes; none: no workspace
    int rank = 0;                                 // higher is tried first; "simple" variants have 0
    const char* layout = nullptr;                 // see VariantBase
  };

  struct Variant : VariantBase {
    Options options;
    Variant(Kernel& slot, Device device_, const char* name_, const Options& options_) : options(options_) {
      name = name_;
      device = device_;
      rank = options.rank;
      layout = options.layout;
      slot.add(*this);
    }
  };

  // Returns the variant that ran. A call that reads what another one kept has a field `layout`, that call's variant's:
  // only variants of this layout run it, and if none can, the call fails.
  const VariantBase& operator()(const Call& call) {
    Variant& variant = select(call, call.tensors());
    Tensor workspace;
    if (variant.options.workspace) workspace = Tensor::workspace(variant.options.workspace(call), variant.device);
    run(variant, call, workspace);
    return variant;
  }

  // For a kernel that calls another one with a part of its own workspace: the bytes that the call asks for, and the
  // call with this memory.
  int64_t workspace(const Call& call) {
    Variant& variant = select(call, call.tensors());
    return variant.options.workspace ? variant.options.workspace(call) : 0;
  }
  void run_in(Tensor& workspace, const Call& call) { run(select(call, call.tensors()), call, workspace); }

 private:
  Variant& select(const Call& call, CallTensors tensors) {
    const Device device = device_of(tensors);
    const char* layout = nullptr;
    if constexpr (requires { call.layout; }) layout = call.layout;
    for (VariantBase* base = variants_; base; base = base->next) {
      Variant& variant = static_cast<Variant&>(*base);
      if (is_candidate(variant, device, layout) && (!variant.options.supported || variant.options.supported(call))) {
        return variant;
      }
    }
    fail_unsupported(device, tensors, layout);
  }

  void run(Variant& variant, const Call& call, Tensor& workspace) {
    ++variant.calls;
    const auto tensors = call.tensors();
    const DeviceRange range(variant.device, Stream::compute, name(), variant.name);
    bool timed = false;
    try {
      timed = is_traced() && begin_trace(variant, tensors);
      const Function& function = variant.options.run;
      function.plain ? function.plain(call) : function.with_workspace(call, workspace);
      if (timed) end_timing(variant, tensors, workspace);
    } catch (const Error& error) {
      if (timed) drop_timing();
      if (error.code() != ExitCode::device) throw;
      fail_on_device(variant, tensors, error);
    }
  }
};

#define HS_CONCAT_(a, b) a##b
#define HS_CONCAT(a, b) HS_CONCAT_(a, b)
// REGISTER_KERNEL(slot, cpu, "name", {.run = function, .supported = ..., .workspace = ..., .rank = ..., .layout =
// ...});
#define REGISTER_KERNEL(slot, device, variant, ...)                                           \
  [[maybe_unused]] static decltype(slot)::Variant HS_CONCAT(registered_##slot##_, __LINE__) { \
    slot, ::hs::Device::device, variant, decltype(slot)::Options __VA_ARGS__                  \
  }

}  // namespace hs
