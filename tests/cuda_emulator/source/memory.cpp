// Device memory: one big mapping without access rights, out of which allocations are cut first-fit from a place that
// moves on, so that freed memory is not reused soon. Each has pages of its own and ends where a page ends, with pages
// behind it that never get access rights: an access beyond them is a SIGSEGV, which becomes a report. Only the
// allocations that a piece of device work uses are opened for it; the host and everything else would fault there, too.
//
// The bytes of an allocation's pages that are not its own (before it; behind it up to 15, because it starts at a
// multiple of 16) cannot be protected. They hold a pattern that is NaN in every type of up to 32 bits, and is looked at
// after the work. New memory is filled with 0xff, which is NaN too.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "internal.h"
#include "memory.h"
#include "sanitizer.h"

namespace hs::emulator {
namespace {

constexpr size_t reserved = 64ull << 30;  // address space, not memory
constexpr size_t alignment = 16;          // of an allocation: what the widest vector needs
constexpr size_t guard_bytes = 64 << 10;  // behind every allocation, and before the first
constexpr unsigned char garbage = 0xff;
const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

char* arena = nullptr;
size_t cursor = guard_bytes;
size_t live = 0;
int access_depth = 0;
pthread_t access_thread;
struct sigaction previous_action, previous_trap;
int failure_in = 0;
struct Allocation {
  size_t bytes;
  bool open = false;
};
// Never destroyed, like all of the emulator's state: the engine's own static objects may free memory after main().
auto& blocks = *new std::map<size_t, Allocation>;  // by offset
auto& opened = *new std::vector<size_t>;           // those of them that are open
auto& freed = *new std::map<size_t, size_t>;       // offset -> bytes, until the pages are used again
auto& pinned = *new std::map<uintptr_t, size_t>;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
size_t first_page(size_t at) { return at / page * page; }
size_t last_page_end(size_t at, size_t bytes) { return rounded_up(at + bytes, page); }

void set_rights(size_t at, size_t bytes, int rights) {
  const size_t begin = first_page(at);
  if (mprotect(arena + begin, last_page_end(at, bytes) - begin, rights) != 0) {
    std::perror("CUDA emulator: device memory");
    std::abort();
  }
}

void open(size_t at, Allocation& block) {
  if (block.open) return;
  set_rights(at, block.bytes, PROT_READ | PROT_WRITE);
  block.open = true;
  opened.push_back(at);
  const Pages pages = {arena + first_page(at), last_page_end(at, block.bytes) - first_page(at)};
  snapshot_opened(pages);
  pages_opened(pages);
}

void close_all() {
  if (!options().protect) return;
  for (const size_t at : opened) {
    Allocation& block = blocks.at(at);
    set_rights(at, block.bytes, PROT_NONE);
    block.open = false;
  }
  opened.clear();
}

bool open_at(const void* address) {
  const char* p = static_cast<const char*>(address);
  if (!arena || p < arena || p >= arena + reserved) return false;
  const size_t offset = static_cast<size_t>(p - arena);
  auto found = blocks.upper_bound(offset);
  if (found == blocks.begin()) return false;
  --found;
  if (offset >= found->first + found->second.bytes || found->second.open) return false;
  open(found->first, found->second);
  return true;
}

// The interrupted code is a kernel, a copy or a GEMM at an access to its data, never the allocator or this file:
// calling what is not async-signal-safe does no harm.
void on_bad_access(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0 && pthread_equal(access_thread, pthread_self())) {
    // An allocation that no argument pointed to: its address was in memory. Or a page that is not written yet.
    if (signal == SIGSEGV && !waits_for_launches_before() && (open_at(info->si_addr) || make_private(info->si_addr)))
      return;
    if (leave_kernel(signal, *info, context)) return;
  }
  // Not ours: the same access faults again, and goes there.
  sigaction(signal, signal == SIGSEGV ? &previous_action : &previous_trap, nullptr);
  if (info->si_code <= 0) raise(signal);
}

void reserve_arena() {
  if (arena) return;
  void* memory = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("CUDA emulator: address space for device memory");
    std::abort();
  }
  arena = static_cast<char*>(memory);
}

// A gap for `need` bytes of whole pages at or after `from`.
size_t find_gap(size_t from, size_t need) {
  size_t at = from;
  const auto end = [](auto block) { return last_page_end(block->first, block->second.bytes) + guard_bytes; };
  auto next = blocks.lower_bound(at);
  if (next != blocks.begin()) at = std::max(at, end(std::prev(next)));
  while (next != blocks.end() && first_page(next->first) < at + need) at = end(next++);
  return at;
}

// The byte of the pattern at this offset, around the allocation at `at`. Neighbours have different ones, so that
// copying too much from one to the other shows.
unsigned char pattern(size_t offset, size_t at) {
  return offset % 2 ? 0xff : static_cast<unsigned char>(0xc0 | at / page % 63);
}

// Calls visit(begin, end) for the bytes before the allocation and for those behind it.
template <class Visit>
void around(size_t at, size_t bytes, const Visit& visit) {
  visit(first_page(at), at);
  visit(at + bytes, last_page_end(at, bytes));
}

void fill_around(size_t at, size_t bytes) {
  around(at, bytes, [at](size_t begin, size_t end) {
    ASAN_UNPOISON_MEMORY_REGION(arena + begin, end - begin);
    for (size_t i = begin; i < end; ++i) arena[i] = static_cast<char>(pattern(i, at));
    ASAN_POISON_MEMORY_REGION(arena + begin, end - begin);
  });
}

void* allocate(size_t bytes) {
  if (bytes > options().total_memory || live > options().total_memory - bytes) return nullptr;
  reserve_arena();
  // Memory is used again early, because untouched memory costs a page fault for each page.
  const size_t need = rounded_up(bytes, page) + guard_bytes;
  if (cursor > 2 * live + (256u << 20)) cursor = guard_bytes;
  size_t pages = find_gap(cursor, need);
  if (pages + need > reserved) pages = find_gap(guard_bytes, need);
  if (pages + need > reserved) return nullptr;
  cursor = pages + need;
  const size_t at = pages + rounded_up(bytes, page) - rounded_up(bytes, alignment);
  while (!freed.empty()) {  // those whose pages these were
    auto overlapping = freed.lower_bound(pages + need);
    if (overlapping == freed.begin()) break;
    --overlapping;
    if (last_page_end(overlapping->first, overlapping->second) <= pages) break;
    freed.erase(overlapping);
  }
  Allocation& block = blocks[at] = {bytes};
  live += bytes;
  open(at, block);
  ASAN_UNPOISON_MEMORY_REGION(arena + at, bytes);
  memset(arena + at, garbage, bytes);
  fill_around(at, bytes);
  ASAN_POISON_MEMORY_REGION(arena + last_page_end(at, bytes), guard_bytes);
  if (access_depth == 0) close_all();
  return arena + at;
}

__attribute__((no_sanitize("address"))) size_t first_overwritten(size_t begin, size_t end, size_t at) {
#ifndef HS_ASAN  // where comparing may not look at these bytes
  // Equal from two bytes to the next: then all are what the first two are.
  if (end - begin > 2 && static_cast<unsigned char>(arena[begin]) == pattern(begin, at) &&
      static_cast<unsigned char>(arena[begin + 1]) == pattern(begin + 1, at) &&
      memcmp(arena + begin, arena + begin + 2, end - begin - 2) == 0) {
    return end;
  }
#endif
  size_t i = begin;
  while (i < end && static_cast<unsigned char>(arena[i]) == pattern(i, at)) ++i;
  return i;
}

}  // namespace

DeviceAccess::DeviceAccess(std::initializer_list<const void*> pointers)
    : DeviceAccess(pointers.begin(), pointers.size()) {}
DeviceAccess::DeviceAccess(const void* const* pointers, size_t count) {
  if (access_depth++ == 0) {
    access_thread = pthread_self();
    struct sigaction action = {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGILL, &action, &previous_trap);
    sigaction(SIGSEGV, &action, &previous_action);  // only while device work runs: others may want this signal, too
  }
  open(pointers, count);
}
void DeviceAccess::open(const void* const* pointers, size_t count) {
  for (size_t i = 0; i < count; ++i) open_at(pointers[i]);
}
DeviceAccess::~DeviceAccess() {
  if (--access_depth > 0) return;
  sigaction(SIGSEGV, &previous_action, nullptr);
  sigaction(SIGILL, &previous_trap, nullptr);
  close_all();
}

Where where(const void* pointer, size_t bytes) {
  const char* p = static_cast<const char*>(pointer);
  if (!arena || p < arena || p >= arena + reserved) return Where::host;
  const size_t offset = static_cast<size_t>(p - arena);
  auto found = blocks.upper_bound(offset);
  if (found == blocks.begin()) return Where::overrun;
  --found;
  return offset + bytes <= found->first + found->second.bytes ? Where::device : Where::overrun;
}

bool is_aligned(const void* pointer, size_t to) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (address % to == 0) return true;
  if (where(pointer, 0) != Where::device) return false;
  const size_t offset = address - reinterpret_cast<uintptr_t>(arena);
  return (offset - std::prev(blocks.upper_bound(offset))->first) % to == 0;
}

uint64_t address_on_device(const void* address) {
  const uint64_t offset = static_cast<uint64_t>(static_cast<const char*>(address) - arena);
  if (!arena || offset >= reserved) return 0;
  auto found = blocks.upper_bound(offset);
  if (found == blocks.begin()) return 0;
  --found;
  return rounded_up(found->first, 256) + (offset - found->first);
}

std::vector<Pages> open_pages() {
  std::vector<Pages> all;
  for (const size_t at : opened) {
    all.push_back({arena + first_page(at), last_page_end(at, blocks.at(at).bytes) - first_page(at)});
  }
  return all;
}

Pages open_pages_with(const void* address) {
  const char* p = static_cast<const char*>(address);
  if (!arena || p < arena || p >= arena + reserved) return {};
  auto found = blocks.upper_bound(first_page(static_cast<size_t>(p - arena)) + page - 1);  // the first on a later page
  if (found == blocks.begin()) return {};
  --found;
  const Pages pages = {arena + first_page(found->first),
                       last_page_end(found->first, found->second.bytes) - first_page(found->first)};
  return found->second.open && p < pages.begin + pages.bytes ? pages : Pages();
}

void set_writable(Pages pages, bool writable) {
  set_rights(static_cast<size_t>(pages.begin - arena), pages.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

bool is_pinned(const void* pointer, size_t bytes) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
  auto found = pinned.upper_bound(p);
  if (found == pinned.begin()) return false;
  --found;
  return p + bytes <= found->first + found->second;
}

const volatile unsigned char* find_overwritten() {
  const volatile unsigned char* found = nullptr;
  for (const size_t at : opened) {
    const size_t bytes = blocks.at(at).bytes;
    bool intact = true;
    around(at, bytes, [&](size_t begin, size_t end) {
      const size_t i = first_overwritten(begin, end, at);
      if (i == end) return;
      intact = false;
      if (!found) found = reinterpret_cast<unsigned char*>(arena + i);
    });
    if (!intact) fill_around(at, bytes);
  }
  return found;
}

std::string describe(const volatile void* address) {
  const char* p = const_cast<const char*>(static_cast<const volatile char*>(address));
  if (!arena || p < arena || p >= arena + reserved) return format("at address %p, which is not on the device", p);
  const size_t offset = static_cast<size_t>(p - arena);
  size_t nearest = reserved;
  std::string text;
  const auto consider = [&](size_t at, size_t bytes, const char* kind) {
    const size_t distance = offset < at ? at - offset : offset < at + bytes ? 0 : offset - at - bytes + 1;
    if (distance >= nearest) return;
    nearest = distance;
    text = offset < at ? format("%zu bytes before the start of %s of %zu bytes", at - offset, kind, bytes)
           : offset < at + bytes
               ? format("at byte %zu of %s of %zu bytes", offset - at, kind, bytes)
               : format("%zu bytes past the end of %s of %zu bytes", offset - at - bytes, kind, bytes);
  };
  for (const auto& [at, block] : blocks) consider(at, block.bytes, "an allocation");
  for (const auto& [at, bytes] : freed) consider(at, bytes, "a freed allocation");
  return text.empty() ? format("at address %p, where nothing is allocated", p) : text;
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
  const size_t bytes = found->second.bytes;
  live -= bytes;
  set_rights(offset, bytes, PROT_NONE);
  ASAN_POISON_MEMORY_REGION(pointer, bytes);
  std::erase(opened, offset);
  blocks.erase(found);
  freed[offset] = bytes;
  return remember(sticky_error());
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api([&] {
    attributes->type = where(pointer, 1) == Where::device ? cudaMemoryTypeDevice
                       : is_pinned(pointer, 1)            ? cudaMemoryTypeHost
                                                          : cudaMemoryTypeUnregistered;
    return cudaSuccess;
  });
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

cudaError_t cudaFreeHost(void* pointer) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (!pointer) return cudaSuccess;
  if (pinned.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) return remember(cudaErrorInvalidValue);
  drain();
  std::free(pointer);
  return remember(sticky_error());
}
