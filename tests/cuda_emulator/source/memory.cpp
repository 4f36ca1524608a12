// Device memory: one big mapping, out of which allocations are cut first-fit from a place that moves on, so that freed
// memory is not reused soon. Between allocations lie guards of known bytes. New and freed memory is filled with 0xff,
// which is NaN in every floating-point format.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "internal.h"
#include "sanitizer.h"

namespace hs::emulator {
namespace {

constexpr size_t reserved = 64ull << 30;  // address space, not memory
constexpr size_t huge = 2 << 20;          // a large page: changing its rights costs as much as for a small one
constexpr size_t alignment = 256;
constexpr size_t guard_bytes = 256;  // at least, behind every allocation; and before the first
constexpr unsigned char guard_value = 0xa5, garbage = 0xff;

char* arena = nullptr;
size_t cursor = guard_bytes;
size_t live = 0;
int access_depth = 0;
int failure_in = 0;
// Never destroyed, like all of the emulator's state: the engine's own static objects may free memory after main().
auto& blocks = *new std::map<size_t, size_t>;  // offset -> bytes asked for
auto& pinned = *new std::map<uintptr_t, size_t>;

size_t padded(size_t bytes) { return (bytes + guard_bytes + alignment - 1) / alignment * alignment; }

// Opens all that lies between the first and the last allocation, or closes what was opened.
void protect(bool open) {
  static size_t begin = 0, end = 0;
  if (open) {
    begin = end = 0;
    if (blocks.empty()) return;
    begin = (blocks.begin()->first - guard_bytes) / huge * huge;
    end = (blocks.rbegin()->first + padded(blocks.rbegin()->second) + huge - 1) / huge * huge;
  } else if (!options().protect) {
    return;
  }
  if (mprotect(arena + begin, end - begin, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    std::perror("CUDA emulator: device memory");
    std::abort();
  }
}

void reserve_arena() {
  if (arena) return;
  void* memory = mmap(nullptr, reserved + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("CUDA emulator: address space for device memory");
    std::abort();
  }
  const uintptr_t address = (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge;
  arena = reinterpret_cast<char*>(address);
  madvise(arena, reserved, MADV_HUGEPAGE);  // a wish; without it only time is lost
}

// A gap for `need` bytes at or after `from`.
size_t find_gap(size_t from, size_t need) {
  size_t at = from;
  auto next = blocks.lower_bound(at);
  if (next != blocks.begin()) at = std::max(at, std::prev(next)->first + padded(std::prev(next)->second));
  while (next != blocks.end() && next->first < at + need) {
    at = next->first + padded(next->second);
    ++next;
  }
  return at;
}

void* allocate(size_t bytes) {
  if (live + bytes > options().total_memory) return nullptr;
  reserve_arena();
  const size_t limit = std::min(reserved, 2 * options().total_memory + (64u << 20));
  size_t at = find_gap(cursor, padded(bytes));
  if (at + padded(bytes) > limit) at = find_gap(guard_bytes, padded(bytes));
  if (at + padded(bytes) > limit) return nullptr;
  cursor = at + padded(bytes);
  blocks[at] = bytes;
  live += bytes;
  DeviceAccess access;
  ASAN_UNPOISON_MEMORY_REGION(arena + at - guard_bytes, guard_bytes + padded(bytes));
  memset(arena + at - guard_bytes, guard_value, guard_bytes);
  memset(arena + at, garbage, bytes);
  memset(arena + at + bytes, guard_value, padded(bytes) - bytes);
  ASAN_POISON_MEMORY_REGION(arena + at - guard_bytes, guard_bytes);
  ASAN_POISON_MEMORY_REGION(arena + at + bytes, padded(bytes) - bytes);
  return arena + at;
}

__attribute__((no_sanitize("address"))) ptrdiff_t first_wrong(const char* begin, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(begin[i]) != guard_value) return static_cast<ptrdiff_t>(i);
  }
  return -1;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool synchronous) {
  if (bytes == 0) return cudaSuccess;
  const Where target = where(to, bytes), source = where(from, bytes);
  if (target == Where::overrun || source == Where::overrun) return cudaErrorInvalidValue;
  const bool to_device = target == Where::device, from_device = source == Where::device;
  if (kind != cudaMemcpyDefault &&
      kind != (from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                           : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost))) {
    return kind < 0 || kind > cudaMemcpyDefault ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
  }
  const auto now = [to, from, bytes] {
    DeviceAccess access;
    memmove(to, from, bytes);
  };
  if (synchronous) {
    if (const cudaError_t error = unsafe_in_capture()) return error;
    now();  // in order with nothing: non-blocking streams do not wait for the default stream, nor it for them
    return cudaSuccess;
  }
  const bool pageable = (!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes));
  if (!pageable) return enqueue(stream, now);
  if (capture_of(stream)) return forbid_in_capture(stream);
  if (!to_device) {  // the real call, too, returns only when a copy to pageable memory has been made
    if (const cudaError_t error = enqueue(stream, now)) return error;
    return cudaStreamSynchronize(stream);
  }
  auto staged =
      std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return enqueue(stream, [to, staged] {
    DeviceAccess access;
    memcpy(to, staged->data(), staged->size());
  });
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (access_depth++ == 0) protect(true);
}
DeviceAccess::~DeviceAccess() {
  if (--access_depth == 0) protect(false);
}

Where where(const void* pointer, size_t bytes) {
  const char* p = static_cast<const char*>(pointer);
  if (!arena || p < arena || p >= arena + reserved) return Where::host;
  const size_t offset = static_cast<size_t>(p - arena);
  auto found = blocks.upper_bound(offset);
  if (found == blocks.begin()) return Where::overrun;
  --found;
  return offset + bytes <= found->first + found->second ? Where::device : Where::overrun;
}

bool is_pinned(const void* pointer, size_t bytes) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
  auto found = pinned.upper_bound(p);
  if (found == pinned.begin()) return false;
  --found;
  return p + bytes <= found->first + found->second;
}

void check_guards(const std::string& culprit) {
  DeviceAccess access;
  for (auto& [at, bytes] : blocks) {
    char* begin = arena + at;
    const ptrdiff_t behind = first_wrong(begin + bytes, padded(bytes) - bytes);
    const ptrdiff_t before = first_wrong(begin - guard_bytes, guard_bytes);
    if (behind < 0 && before < 0) continue;
    report(cudaErrorIllegalAddress,
           behind >= 0 ? format("%s has written %td bytes behind the end of an allocation of %zu bytes",
                                culprit.c_str(), behind, bytes)
                       : format("%s has written %td bytes before an allocation of %zu bytes", culprit.c_str(),
                                static_cast<ptrdiff_t>(guard_bytes) - before, bytes));
    ASAN_UNPOISON_MEMORY_REGION(begin - guard_bytes, guard_bytes + padded(bytes));
    memset(begin - guard_bytes, guard_value, guard_bytes);  // say it once
    memset(begin + bytes, guard_value, padded(bytes) - bytes);
    ASAN_POISON_MEMORY_REGION(begin - guard_bytes, guard_bytes);
    ASAN_POISON_MEMORY_REGION(begin + bytes, padded(bytes) - bytes);
    return;
  }
}

void forget_failures() { failure_in = 0; }
void fail_malloc(int nth) {
  std::lock_guard guard(mutex());
  failure_in = nth;
}
size_t live_bytes() { return live; }
size_t live_allocations() { return blocks.size(); }

}  // namespace hs::emulator

using namespace hs::emulator;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return api([&] {
    if (!pointer) return cudaErrorInvalidValue;
    if (const cudaError_t error = unsafe_in_capture()) return error;
    if (failure_in > 0 && --failure_in == 0) return cudaErrorMemoryAllocation;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    *pointer = allocate(bytes);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* pointer) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (!pointer) return cudaSuccess;
  if (const cudaError_t error = unsafe_in_capture()) return remember(error);
  drain();  // as the real one does
  const size_t offset = static_cast<size_t>(static_cast<char*>(pointer) - arena);
  auto found = blocks.find(offset);
  if (!arena || found == blocks.end()) return remember(cudaErrorInvalidValue);
  check_guards("something");
  live -= found->second;
  {
    DeviceAccess access;
    memset(pointer, garbage, found->second);
    ASAN_POISON_MEMORY_REGION(pointer, found->second);
  }
  blocks.erase(found);
  return remember(sticky_error());
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return api([&] {
    *total_bytes = options().total_memory;
    *free_bytes = options().total_memory - std::min(live, options().total_memory);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return api([&] {
    if (!pointer) return cudaErrorInvalidValue;
    if (const cudaError_t error = unsafe_in_capture()) return error;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (!(*pointer = std::malloc(bytes))) return cudaErrorMemoryAllocation;
    pinned[reinterpret_cast<uintptr_t>(*pointer)] = bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* pointer) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (!pointer) return cudaSuccess;
  if (pinned.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) return remember(cudaErrorInvalidValue);
  drain();
  std::free(pointer);
  return remember(sticky_error());
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api([&] { return copy(to, from, bytes, kind, nullptr, true); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api([&] {
    if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
    return copy(to, from, bytes, kind, stream, false);
  });
}

static cudaError_t set(void* to, int value, size_t bytes, cudaStream_t stream, bool synchronous) {
  if (bytes == 0) return cudaSuccess;
  if (where(to, bytes) != Where::device) return cudaErrorInvalidValue;
  const auto now = [to, value, bytes] {
    DeviceAccess access;
    memset(to, value, bytes);
  };
  if (!synchronous) return enqueue(stream, now);
  if (const cudaError_t error = unsafe_in_capture()) return error;
  now();
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return api([&] { return set(to, value, bytes, nullptr, true); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return api([&] { return set(to, value, bytes, stream, false); });
}
