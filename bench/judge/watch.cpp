#include "bench/judge/watch.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdlib>
#include <cstring>
#include <new>

#include "bench/cli/forced_kernels.h"
#include "engine/observe.h"

namespace hs::bench::judge {
namespace {

using Bytes = std::vector<unsigned char>;

// Allocations of the kernel that runs now, through a tensor or as `kernel build` links malloc() and its kind.
constinit bool in_kernel = false;
constinit int64_t allocations = 0;

// Between the begin and the end of a slot's work its kernel runs, and the slot itself allocates nothing.
class CountAllocations : public Observer {
 public:
  explicit CountAllocations(const KernelSlot& slot)
      : Observer(Event::work | Event::storage, Watch::this_thread), slot_(slot) {}
  void work_begins(const DeviceWork& work) override { in_kernel = work.name == slot_.name(); }
  void work_ends(const DeviceWork&, bool) override { in_kernel = false; }
  void storage(Device, const MemoryEvent& event, const MemoryStats&) override {
    // A workspace is of a slot that the kernel calls.
    allocations += in_kernel && event.made && event.bytes > 0 && event.purpose != MemoryPurpose::workspace;
  }

 private:
  const KernelSlot& slot_;
  const Attached attached_{*this};
};

unsigned floating_point_settings() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;  // without the flags of what has happened
#else
  return 0;
#endif
}

Bytes bytes_of(const Tensor& tensor) {
  if (tensor.bytes() == 0) return {};
  const Tensor host = tensor.to(Device::cpu);
  const auto* begin = static_cast<const unsigned char*>(host.raw_data());
  return {begin, begin + host.bytes()};
}

// Past the count of modifications: what the op has saved stays as it was.
void put(const Tensor& tensor, const Bytes& bytes) {
  if (bytes.empty()) return;
  runtime(tensor.device())
      .copy(const_cast<void*>(tensor.raw_data()), bytes.data(), bytes.size(), CopyDirection::to_device);
}

// Of one call, on one of its tensors.
struct Effect {
  bool written = false;      // it counted as a modification, or its bytes changed
  std::vector<bool> stored;  // the bytes of it that the call stored, if it was uninitialised
  bool repeats = true;       // all calls left the same bits
};
using Effects = std::vector<Effect>;

// Makes the call twice: where an output was uninitialised, on two patterns that differ in every bit. Then more times on
// the first of them.
Effects effects_of(const SpiedCall& call, const VariantBase*& ran, int more_calls) {
  const size_t count = call.tensors.size();
  std::vector<Bytes> first(count), once(count);  // what was there before the first call, and after it
  std::vector<uint64_t> versions(count);
  std::vector<bool> fresh(count);
  for (size_t i = 0; i < count; ++i) {
    const Tensor& tensor = *call.tensors[i];
    versions[i] = tensor.version();
    first[i] = bytes_of(tensor);
    fresh[i] = is_poison(first[i]);
    for (size_t b = 0; fresh[i] && b < first[i].size(); ++b)
      first[i][b] = static_cast<unsigned char>(37 * b + 59 * i + 1);
    if (fresh[i]) put(tensor, first[i]);
  }
  ran = &call.again();
  Effects effects(count);
  for (size_t i = 0; i < count; ++i) {
    const Tensor& tensor = *call.tensors[i];
    once[i] = bytes_of(tensor);
    effects[i].written = tensor.version() != versions[i] || once[i] != first[i];
    Bytes second = first[i];
    for (unsigned char& byte : second) byte = fresh[i] ? static_cast<unsigned char>(~byte) : byte;
    put(tensor, second);
  }
  call.again();
  for (size_t i = 0; i < count; ++i) {
    if (once[i].empty()) continue;
    const bool is_mask = ran->layout && call.tensors[i]->dtype() == DType::u8;  // in a layout that others do not have
    if (is_mask && call.tensors[i]->device() == Device::cuda) continue;         // cuBLASLt's has spare bits
    const Bytes twice = bytes_of(*call.tensors[i]);
    for (size_t b = 0; b < twice.size(); ++b) {
      const bool left = fresh[i] && once[i][b] == first[i][b] && twice[b] == static_cast<unsigned char>(~first[i][b]);
      if (fresh[i] && !is_mask) effects[i].stored.push_back(!left);
      effects[i].repeats = effects[i].repeats && (left || once[i][b] == twice[b]);
    }
  }
  // A kernel that is right most of the time is wrong now and then. What adds to a tensor would add each time.
  for (size_t i = 0; i < count; ++i) {
    if (effects[i].written && !fresh[i]) return effects;
  }
  for (int n = 0; n < more_calls; ++n) {
    for (size_t i = 0; i < count; ++i) {
      if (fresh[i]) put(*call.tensors[i], first[i]);
    }
    call.again();
    for (size_t i = 0; i < count; ++i) {
      if (fresh[i]) effects[i].repeats = effects[i].repeats && bytes_of(*call.tensors[i]) == once[i];
    }
  }
  return effects;
}

// Runs `work` and returns the effects of its calls of the slot, in their order.
std::vector<Effects> effects_in(const KernelSlot& slot, Device device, const std::function<void()>& work,
                                int more_calls = 0) {
  std::vector<Effects> all;
  const KernelSpy spy = [&](const SpiedCall& call) -> const VariantBase& {
    const auto is_defined = [](const Tensor* tensor) { return tensor->defined(); };
    const auto first = std::ranges::find_if(call.tensors, is_defined);
    if (&call.slot != &slot || first == call.tensors.end() || (*first)->device() != device) return call.again();
    const VariantBase* ran = nullptr;
    all.push_back(effects_of(call, ran, more_calls));
    return *ran;
  };
  const SpyScope scope(&spy);
  work();
  return all;
}

// The first of each check.
void add(Json& findings, const char* check, const std::string& text) {
  const auto is_there = [&](const Json& one) { return one.at("check") == check; };
  if (std::ranges::none_of(findings, is_there)) findings.push_back({{"check", check}, {"text", text}});
}

void compare(const Effects& judged, const Effects& trusted, Json& findings) {
  for (size_t i = 0; i < judged.size(); ++i) {
    const Effect &one = judged[i], &other = trusted[i];
    if (one.written && !other.written) add(findings, "inputs", fmt::format("it changes tensor {} of the call", i));
    for (size_t b = 0; b < std::min(one.stored.size(), other.stored.size()); ++b) {
      if (one.stored[b] || !other.stored[b]) continue;
      add(findings, "written", fmt::format("it leaves byte {} of tensor {} of the call as it was", b, i));
    }
    if (!one.repeats && other.repeats) {
      add(findings, "repeat", fmt::format("the same call gives other bits in tensor {} the second time", i));
    }
  }
}

}  // namespace

Json watched(KernelSlot& slot, const std::string& variant, Device device, const std::function<void()>& trusted,
             const std::function<void()>& judged) {
  std::vector<std::vector<Effects>> others;
  cli::with_each_variant(slot, device, [&](const VariantBase& other) {
    if (other.name != variant) others.push_back(effects_in(slot, device, trusted));
  });
  Json findings = Json::array();
  const unsigned settings = floating_point_settings();
  std::vector<Effects> own;
  {
    allocations = 0;
    const CountAllocations count(slot);
    own = effects_in(slot, device, judged, device == Device::cpu ? 20 : 0);  // the emulator repeats by itself
  }
  if (allocations > 0 && device == Device::cpu)
    add(findings, "allocation",
        "it allocates memory; expected what .workspace asks for (Eigen allocates above 128 KiB)");
  if (floating_point_settings() != settings) {
    add(findings, "denormals", "it leaves the processor's floating-point settings changed");
  }
  for (const auto& other : others) {
    for (size_t call = 0; call < std::min(own.size(), other.size()); ++call) compare(own[call], other[call], findings);
  }
  return findings;
}

}  // namespace hs::bench::judge

// What `kernel build` makes a plug-in call instead of malloc(), operator new and mmap() (bench/cli/plugins.cpp).
namespace {
void* counted(void* memory) {
  hs::bench::judge::allocations += hs::bench::judge::in_kernel;
  return memory;
}
}  // namespace
extern "C" {
void* __wrap_malloc(size_t bytes) { return counted(std::malloc(bytes)); }
void* __wrap_calloc(size_t count, size_t bytes) { return counted(std::calloc(count, bytes)); }
void* __wrap_aligned_alloc(size_t alignment, size_t bytes) { return counted(std::aligned_alloc(alignment, bytes)); }
void* __wrap__Znwm(size_t bytes) { return counted(::operator new(bytes)); }
void* __wrap__ZnwmSt11align_val_t(size_t bytes, std::align_val_t to) { return counted(::operator new(bytes, to)); }
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return counted(::mmap(address, bytes, protection, flags, file, offset));
}
}
