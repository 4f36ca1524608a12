// A kernel slot is a named function with several implementations ("variants") per device. A call passes a struct with
// named fields, inputs const, outputs not; tensors() lists its tensors, inputs first.
//
// A call selects the highest-ranked variant that supports it on the device of its first defined tensor, or the one that
// force_variant() or else a tuning table (engine/tuning.h) names, allocates the workspace that this variant asks for,
// and runs it. Kernels return nothing and never allocate. Slots are constant-initialised, so the order of static
// objects does not matter. Link the registering objects directly: the linker silently drops them from a static archive
// (docs/add_a_kernel.md). Not thread safe: one thread at a time calls kernels.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device.h"
#include "engine/error.h"
#include "engine/observe.h"
#include "engine/tensor.h"

namespace hs {

constexpr auto tensor_list(const auto&... tensors) {  // for tensors() of a call
  return std::array<const Tensor*, sizeof...(tensors)>{&tensors...};
}
// Stands for an omitted optional tensor of a call: undefined, and kernels leave it so.
inline Tensor& no_tensor() {
  static thread_local Tensor undefined;
  return undefined;
}

// The rank of a variant that is there to be read, measured and compared with: an op that has another way takes that,
// see is_taken().
inline constexpr int only_if_forced = -20;

// A variant without its functions.
struct VariantBase {
  const char* name = nullptr;    // unique among the variants of a slot and device
  Device device = Device::cpu;   // where it runs
  int rank = 0;                  // higher ones are tried first
  const char* layout = nullptr;  // of what it keeps for backward, if only variants with this layout can read it
  double error_growth = 1;       // rounding errors beside those of the plain sums; above 1: also of integers
  uint64_t calls = 0;            // number of calls so far
  VariantBase* next = nullptr;   // by descending rank, then by name
};

// A line of a tuning table: calls of a slot whose tensors have these types and shapes take this variant.
struct TunedCall {
  class KernelSlot* slot = nullptr;
  std::vector<int64_t> tensors;  // see signature()
  const VariantBase* variant = nullptr;
  const TunedCall* next = nullptr;  // of the slot, while the table is in use
  mutable uint64_t calls = 0;       // that it decided
};

// The types and shapes of a call's tensors: of each its type, rank and dimensions, or -1 if it is undefined.
std::vector<int64_t> signature(CallTensors tensors);

// A call of an op, as a KernelSpy sees it.
struct SpiedCall {
  const KernelSlot& slot;                     // the slot that was called
  const void* call;                           // the struct of the slot
  CallTensors tensors;                        // the call's tensors, inputs first
  std::function<const VariantBase&()> again;  // makes the call and returns the variant that ran
};
// Gets the calls in place of the slots, except those made within it, and returns what the call returns.
using KernelSpy = std::function<const VariantBase&(const SpiedCall&)>;

// The part of a slot that does not depend on its signature: what `info`, --kernel and the tests see.
class KernelSlot : NonCopyable {
 public:
  constexpr explicit KernelSlot(const char* name) : name_(name) {}  // name must outlive it: a literal

  const char* name() const { return name_; }                 // as in --kernel NAME=VARIANT
  const VariantBase* variants() const { return variants_; }  // of all devices, by rank; nullptr if there is none
  KernelSlot* next_slot() const { return next_slot_; }   // of all that have variants, in no order; nullptr at the end
  bool is_forced() const { return forced_ != nullptr; }  // whether force() chose a variant
  bool exists_on(Device device) const;                   // has a variant for this device
  static bool is_watched() { return spy_ != nullptr; }   // whether somebody compares what calls have written

  // Uses only this variant from now on; nullptr: the best one again. Throws Error (usage) on an unknown name.
  void force(const char* variant);

 protected:
  void add(VariantBase& variant);  // called when a Variant is constructed
  // Whether device, layout and force() allow the variant.
  bool is_candidate(const VariantBase& variant, Device device, const char* layout) const;
  const TunedCall* tuned(CallTensors tensors) const;  // the line for this call, or nullptr
  static Device device_of(CallTensors tensors);       // of the first defined tensor
  // Throws Error (usage) that names the variant, which asks for fewer than 0 bytes.
  [[noreturn]] void fail_workspace(const VariantBase& variant, int64_t bytes) const;
  // Throws Error (usage) that lists the variants.
  [[noreturn]] void fail_unsupported(Device device, CallTensors tensors, const char* layout) const;
  // Throws Error (device) that describes the call.
  [[noreturn]] void fail_on_device(const VariantBase& variant, CallTensors tensors, const Error& error) const;

  VariantBase* variants_ = nullptr;                         // by descending rank, then by name
  const TunedCall* tuned_ = nullptr;                        // lines of the table in use; nullptr: none
  static inline constinit const KernelSpy* spy_ = nullptr;  // gets the calls of all slots; nullptr: none

 private:
  friend class TuningInUse;
  friend class SpyScope;
  const char* name_;
  const char* forced_ = nullptr;  // points into the forced variant
  KernelSlot* next_slot_ = nullptr;
};

// While it is alive, the spy gets the calls of all slots; with nullptr nobody does. Scopes nest.
class SpyScope : NonCopyable {
 public:
  explicit SpyScope(const KernelSpy* spy) : before_(std::exchange(KernelSlot::spy_, spy)) {}  // spy must outlive it
  ~SpyScope() { KernelSlot::spy_ = before_; }

 private:
  const KernelSpy* const before_;
};

// Every slot with at least one variant, sorted by name.
std::vector<KernelSlot*> kernel_slots();

// assignment: "conv2d_forward=im2col". Throws Error (usage) that lists the existing names.
void force_variant(std::string_view assignment);

// A slot for calls of one type. Example:
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
template <class Call>
class Kernel : public KernelSlot {
 public:
  using KernelSlot::KernelSlot;  // the constructor takes the slot's name

  // What a variant runs: a function of the call, or of the call and the workspace that the variant asked for.
  struct Function {
    constexpr Function(void (*function)(const Call&)) : plain(function) {}  // implicit: {.run = function}
    constexpr Function(void (*function)(const Call&, Tensor& workspace)) : with_workspace(function) {}
    template <std::convertible_to<void (*)(const Call&)> Lambda>  // one that captures nothing
    constexpr Function(Lambda lambda) : plain(lambda) {}
    template <std::convertible_to<void (*)(const Call&, Tensor& workspace)> Lambda>
    constexpr Function(Lambda lambda) : with_workspace(lambda) {}
    void (*plain)(const Call&) = nullptr;                              // nullptr: with_workspace is set
    void (*with_workspace)(const Call&, Tensor& workspace) = nullptr;  // nullptr: plain is set
  };

  // What REGISTER_KERNEL() is given.
  struct Options {
    Function run;                                 // launches the kernel
    bool (*supported)(const Call&) = nullptr;     // none: every call
    int64_t (*workspace)(const Call&) = nullptr;  // bytes; none: no workspace
    int rank = 0;                                 // higher is tried first; "simple" variants have 0
    bool (*pays)(const Call&) = nullptr;          // false: tried after all others that support it; none: always true
    const char* layout = nullptr;                 // see VariantBase
    double error_growth = 1;                      // see VariantBase
  };

  // A variant of this slot.
  struct Variant : VariantBase {
    Options options;  // as given to REGISTER_KERNEL()
    // Registers the variant with its slot.
    Variant(Kernel& slot, Device device_, const char* name_, const Options& options_) : options(options_) {
      name = name_;
      device = device_;
      rank = options.rank;
      layout = options.layout;
      error_growth = options.error_growth;
      slot.add(*this);
    }
  };

  // Returns the variant that ran. A call that reads what another one kept has a field `layout`, set from that call's
  // variant: only variants with this layout run it, and if none can, the call fails.
  const VariantBase& operator()(const Call& call) {
    const auto tensors = call.tensors();
    if (spy_) return call_spied(call, tensors);
    Variant& variant = select_tuned(call, tensors);
    const int64_t bytes = variant.options.workspace ? variant.options.workspace(call) : 0;
    if (bytes < 0) fail_workspace(variant, bytes);
    Tensor workspace = variant.options.workspace ? Tensor::workspace(bytes, variant.device) : Tensor();
    run(variant, call, workspace);
    return variant;
  }

  // The variant that would run this call without the tuning table, or nullptr.
  const VariantBase* variant_for(const Call& call) { return find(call, call.tensors()); }

  // Whether an op that has another way, too, should make this call: a variant supports it, and is forced or ranks above
  // only_if_forced.
  bool is_taken(const Call& call) {
    const VariantBase* variant = variant_for(call);
    return variant && (is_forced() || variant->rank > only_if_forced);
  }

  // For a kernel that passes a part of its own workspace to another kernel: the bytes that the call needs, and the call
  // using this memory. Both ignore the tuning table, which may know only one of them by its tensors.
  int64_t workspace(const Call& call) {
    Variant& variant = select(call, call.tensors());
    const int64_t bytes = variant.options.workspace ? variant.options.workspace(call) : 0;
    if (bytes < 0) fail_workspace(variant, bytes);
    return bytes;
  }
  // Runs the call in this memory; see workspace().
  void run_in(Tensor& workspace, const Call& call) { run(select(call, call.tensors()), call, workspace); }

 private:
  const VariantBase& call_spied(const Call& call, CallTensors tensors) {
    const KernelSpy& spy = *spy_;
    const SpyScope nobody(nullptr);
    return spy({*this, &call, tensors, [&]() -> const VariantBase& { return (*this)(call); }});
  }

  static const char* layout_of(const Call& call) {
    if constexpr (requires { call.layout; }) return call.layout;
    return nullptr;
  }

  // only: considers no other variant.
  Variant* find(const Call& call, CallTensors tensors, const VariantBase* only = nullptr) {
    const Device device = device_of(tensors);
    const char* layout = layout_of(call);
    Variant* last = nullptr;
    for (VariantBase* base = variants_; base; base = base->next) {
      Variant& variant = static_cast<Variant&>(*base);
      const Options& options = variant.options;
      if (!is_candidate(variant, device, layout) || (only && base != only)) continue;
      if (options.supported && !options.supported(call)) continue;
      if (!options.pays || options.pays(call)) return &variant;
      if (!last) last = &variant;
    }
    return last;
  }

  Variant& select_tuned(const Call& call, CallTensors tensors) {
    const TunedCall* line = tuned_ ? tuned(tensors) : nullptr;
    Variant* variant = line ? find(call, tensors, line->variant) : nullptr;
    if (!variant) return select(call, tensors);
    ++line->calls;
    return *variant;
  }

  Variant& select(const Call& call, CallTensors tensors) {
    Variant* variant = find(call, tensors);
    if (!variant) fail_unsupported(device_of(tensors), tensors, layout_of(call));
    return *variant;
  }

  void run(Variant& variant, const Call& call, Tensor& workspace) {
    ++variant.calls;
    const auto tensors = call.tensors();
    try {
      WorkRange range({variant.device, Stream::compute, name(), variant.name, tensors, &workspace});
      const Function& function = variant.options.run;
      function.plain ? function.plain(call) : function.with_workspace(call, workspace);
      range.end();
    } catch (const Error& error) {
      if (error.code() != ExitCode::device) throw;
      fail_on_device(variant, tensors, error);
    }
  }
};

#define HS_CONCAT_(a, b) a##b             // joins two names
#define HS_CONCAT(a, b) HS_CONCAT_(a, b)  // expands two names and joins them
// REGISTER_KERNEL(slot, cpu, "name", {.run = function, .supported = ..., .workspace = ..., .rank = ..., .layout =
// ...});
#define REGISTER_KERNEL(slot, device, variant, ...)                                           \
  [[maybe_unused]] static decltype(slot)::Variant HS_CONCAT(registered_##slot##_, __LINE__) { \
    slot, ::hs::Device::device, variant, decltype(slot)::Options __VA_ARGS__                  \
  }

}  // namespace hs
