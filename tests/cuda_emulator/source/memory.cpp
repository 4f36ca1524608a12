// Device memory (README.md, "Global memory"): one big mapping without access rights, out of which allocations are cut
// first-fit from a place that moves on, so that freed memory is not reused soon. Only the allocations that a piece of
// device work uses are opened for it: the host and everything else get a SIGSEGV there, which becomes a report.
//
// The bytes of an allocation's pages that are not its own hold a pattern that is NaN in every type of up to 32 bits,
// and is looked at after the work. New memory is filled with 0xff, which is NaN too.
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
using Block = std::pair<const size_t, Allocation>;  // the first: where in the arena
// Never destroyed, like all of the emulator's state: the engine's own static objects may free memory after main().
auto& blocks = *new std::map<size_t, Allocation>;
auto& opened = *new std::vector<Block*>;      // those of them that are open
auto& freed = *new std::map<size_t, size_t>;  // offset -> bytes, until the pages are used again
auto& pinned = *new std::map<uintptr_t, size_t>;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
size_t first_page(size_t at) { return at / page * page; }
size_t last_page_end(size_t at, size_t bytes) { return rounded_up(at + bytes, page); }
Pages pages_of(const Block& block) {
  const size_t begin = first_page(block.first);
  return {arena + begin, last_page_end(block.first, block.second.bytes) - begin};
}

// Where in the arena; `reserved` if it is not there.
size_t offset_of(const volatile void* address) {
  const auto* p = static_cast<const volatile char*>(address);
  return arena && p >= arena && p < arena + reserved ? static_cast<size_t>(p - arena) : reserved;
}

// The last entry of a map that begins at `at` or before; null if there is none.
template <class Map>
auto* last_until(Map& map, typename Map::key_type at) {
  const auto next = map.upper_bound(at);
  return next == map.begin() ? nullptr : &*std::prev(next);
}

void set_rights(Pages pages, int rights) {
  if (mprotect(pages.begin, pages.bytes, rights) != 0) {
    std::perror("CUDA emulator: device memory");
    std::abort();
  }
}

void open(Block& block) {
  const Pages pages = pages_of(block);
  set_rights(pages, PROT_READ | PROT_WRITE);
  block.second.open = true;
  opened.push_back(&block);
  snapshot_opened(pages);
  pages_opened(pages);
}

void close_all() {
  if (!options().protect) return;
  for (Block* block : opened) {
    set_rights(pages_of(*block), PROT_NONE);
    block->second.open = false;
  }
  opened.clear();
}

bool open_at(const void* address) {
  const size_t offset = offset_of(address);
  Block* const block = last_until(blocks, offset);
  if (!block || offset >= block->first + block->second.bytes || block->second.open) return false;
  open(*block);
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
void around(const Block& block, const Visit& visit) {
  const auto& [at, allocation] = block;
  visit(first_page(at), at);
  visit(at + allocation.bytes, last_page_end(at, allocation.bytes));
}

void fill_around(const Block& block) {
  around(block, [at = block.first](size_t begin, size_t end) {
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
  while (const auto* overlapping = last_until(freed, pages + need - 1)) {  // those whose pages these were
    if (last_page_end(overlapping->first, overlapping->second) <= pages) break;
    freed.erase(overlapping->first);
  }
  Block& block = *blocks.insert({at, {bytes}}).first;
  live += bytes;
  open(block);
  ASAN_UNPOISON_MEMORY_REGION(arena + at, bytes);
  memset(arena + at, garbage, bytes);
  fill_around(block);
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

DeviceAccess::DeviceAccess(std::initializer_list<const void*> pointers) {
  if (access_depth++ == 0) {
    access_thread = pthread_self();
    struct sigaction action = {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(trap_signal, &action, &previous_trap);
    sigaction(SIGSEGV, &action, &previous_action);  // only while device work runs: others may want this signal, too
  }
  open(pointers.begin(), pointers.size());
}
void DeviceAccess::open(const void* const* pointers, size_t count) {
  for (size_t i = 0; i < count; ++i) open_at(pointers[i]);
}
DeviceAccess::~DeviceAccess() {
  if (--access_depth > 0) return;
  sigaction(SIGSEGV, &previous_action, nullptr);
  sigaction(trap_signal, &previous_trap, nullptr);
  close_all();
}

Where where(const void* pointer, size_t bytes) {
  const size_t offset = offset_of(pointer);
  if (offset == reserved) return Where::host;
  const Block* const block = last_until(blocks, offset);
  return block && offset + bytes <= block->first + block->second.bytes ? Where::device : Where::overrun;
}

bool is_aligned(const void* pointer, size_t to) {
  if (reinterpret_cast<uintptr_t>(pointer) % to == 0) return true;
  if (where(pointer, 0) != Where::device) return false;
  const size_t offset = offset_of(pointer);
  return (offset - last_until(blocks, offset)->first) % to == 0;
}

uint64_t address_on_device(const void* address) {
  const size_t offset = offset_of(address);
  const Block* const block = offset == reserved ? nullptr : last_until(blocks, offset);
  return block ? rounded_up(block->first, 256) + (offset - block->first) : 0;
}

std::vector<Pages> open_pages() {
  std::vector<Pages> all;
  for (const Block* block : opened) all.push_back(pages_of(*block));
  return all;
}

Pages open_pages_with(const void* address) {
  const size_t offset = offset_of(address);
  if (offset == reserved) return {};
  const Block* const block = last_until(blocks, first_page(offset) + page - 1);  // the last that begins on its page
  if (!block || !block->second.open) return {};
  const Pages pages = pages_of(*block);
  return address < pages.begin + pages.bytes ? pages : Pages();
}

void set_writable(Pages pages, bool writable) { set_rights(pages, writable ? PROT_READ | PROT_WRITE : PROT_READ); }

bool is_pinned(const void* pointer, size_t bytes) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(pointer);
  const auto* const found = last_until(pinned, p);
  return found && p + bytes <= found->first + found->second;
}

const volatile unsigned char* find_overwritten() {
  const volatile unsigned char* found = nullptr;
  for (const Block* block : opened) {
    bool intact = true;
    around(*block, [&](size_t begin, size_t end) {
      const size_t i = first_overwritten(begin, end, block->first);
      if (i == end) return;
      intact = false;
      if (!found) found = reinterpret_cast<unsigned char*>(arena + i);
    });
    if (!intact) fill_around(*block);
  }
  return found;
}

std::string describe(const volatile void* address) {
  const void* p = const_cast<const void*>(address);
  const size_t offset = offset_of(address);
  if (offset == reserved) return format("at address %p, which is not on the device", p);
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
  auto found = blocks.find(offset_of(pointer));
  if (found == blocks.end()) return remember(cudaErrorInvalidValue);
  const size_t bytes = found->second.bytes;
  live -= bytes;
  set_rights(pages_of(*found), PROT_NONE);
  ASAN_POISON_MEMORY_REGION(pointer, bytes);
  std::erase(opened, &*found);
  freed[found->first] = bytes;
  blocks.erase(found);
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
