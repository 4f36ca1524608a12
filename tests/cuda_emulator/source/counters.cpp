// Counts what the loads and stores of warps move, and where lanes part: README.md, "Counts", says how. An instruction
// is known by its address, the return address of the function that is told of the access: shared memory's own, or
// __tsan_read4(address) and the like, which the compiler calls at each access to global memory.
#include "counters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "block.h"
#include "internal.h"
#include "memory.h"

namespace hs::emulator {

bool counting = false;

namespace {

enum Kind : uint8_t { load, store, shared };
constexpr int shared_load = 10, shared_store = 15;  // of one byte, in Counts::instructions

struct LaneAccess {
  const void* site;
  uint64_t address;  // in global memory as on a device, where an allocation starts at a multiple of 256
  uint32_t bytes;
  uint32_t turn;  // how often the lane has been at the site before, since its warp was together
  uint8_t lane;
  Kind kind;
  int instruction;  // in Counts::instructions
};
using Request = std::vector<LaneAccess>;

using Ways = std::array<std::vector<uintptr_t>, 32>;  // the blocks that each lane has entered

auto& pending = *new std::vector<Request>;  // per warp, not yet split into requests
auto& ways = *new std::vector<Ways>;        // per warp, since it was together
auto& all_counts = *new std::vector<std::pair<const void*, Counts>>;
auto& arrays = *new std::set<const SharedBuffer*>;  // that the launch has used
bool sees_global = false;                           // some kernel's file was compiled for it
Counts* counts = nullptr;

uint64_t distinct(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  return static_cast<uint64_t>(std::unique(values.begin(), values.end()) - values.begin());
}

void keep_costliest(Counts::Costliest& kept, uint64_t cost, const LaneAccess* begin, const LaneAccess* end) {
  if (cost < kept.cost) return;
  const auto [first, last] =
      std::minmax_element(begin, end, [](const LaneAccess& a, const LaneAccess& b) { return a.address < b.address; });
  const uint64_t reach = last->address - first->address;
  if (!kept.lanes.empty() && cost == kept.cost && reach <= kept.reach) return;
  kept = {.cost = cost, .reach = reach, .is_store = begin->kind == store || begin->instruction >= shared_store};
  for (const LaneAccess* a = begin; a < end; ++a) kept.lanes.push_back({a->lane, a->address, a->bytes});
}

void count_global_request(const LaneAccess* begin, const LaneAccess* end) {
  std::vector<uint64_t> sectors, bytes;
  for (const LaneAccess* a = begin; a < end; ++a) {
    for (uint64_t at = a->address; at < a->address + a->bytes; ++at) bytes.push_back(at);
    for (uint64_t s = a->address / 32; s <= (a->address + a->bytes - 1) / 32; ++s) sectors.push_back(s);
  }
  Counts::Global& global = begin->kind == load ? counts->loads : counts->stores;
  ++global.requests;
  const uint64_t touched = distinct(sectors);
  global.sectors += touched;
  keep_costliest(counts->costliest_global, touched, begin, end);
  global.bytes_used += distinct(bytes);
}

// A wavefront serves one word of each of the 32 banks; lanes that want the same word share it. Eight bytes for each
// lane are served in two halves of the warp and 16 bytes in four quarters, which is no conflict: each has as many words
// as banks.
void count_shared_request(const LaneAccess* begin, const LaneAccess* end) {
  std::vector<uint64_t> words;  // part of the warp, bank and word
  for (const LaneAccess* a = begin; a < end; ++a) {
    for (uint64_t word = a->address / 4; word <= (a->address + a->bytes - 1) / 4; ++word) {
      const bool in_parts = a->bytes == 8 || a->bytes == 16;
      const uint64_t part = in_parts ? a->lane * a->bytes / 128 : a->bytes > 4 ? word - a->address / 4 : 0;
      words.push_back(part << 56 | word % 32 << 48 | (word & 0xffffffffffff));
    }
  }
  words.resize(distinct(words));
  uint64_t parts = 0, wavefronts = 0;
  for (size_t i = 0; i < words.size();) {
    const uint64_t part = words[i] >> 56;
    uint64_t most = 0;
    while (i < words.size() && words[i] >> 56 == part) {
      const uint64_t bank = words[i] >> 48;
      uint64_t here = 0;
      for (; i < words.size() && words[i] >> 48 == bank; ++i) ++here;
      most = std::max(most, here);
    }
    ++parts;
    wavefronts += most;
  }
  ++counts->shared.requests;
  counts->shared.conflicts += wavefronts - parts;
  keep_costliest(counts->costliest_shared, wavefronts - parts, begin, end);
}

void count_requests(Request& all) {
  const auto of_lane = [](const LaneAccess& a) { return std::tuple(a.site, a.kind, a.lane, a.turn); };
  const auto of_request = [](const LaneAccess& a) { return std::tuple(a.site, a.kind, a.turn); };
  std::sort(all.begin(), all.end(), [&](auto& a, auto& b) { return of_lane(a) < of_lane(b); });
  for (size_t i = 0; i < all.size(); ++i) {  // so far, the turn is the access's place in the order of all
    const bool again =
        i > 0 && all[i].site == all[i - 1].site && all[i].kind == all[i - 1].kind && all[i].lane == all[i - 1].lane;
    all[i].turn = again ? all[i - 1].turn + 1 : 0;
  }
  std::stable_sort(all.begin(), all.end(), [&](auto& a, auto& b) { return of_request(a) < of_request(b); });
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && of_request(all[end]) == of_request(all[begin])) ++end;
    if (all[begin].instruction >= 0) ++counts->instructions[static_cast<size_t>(all[begin].instruction)];
    (all[begin].kind == shared ? count_shared_request : count_global_request)(&all[begin], all.data() + end);
  }
  all.clear();
}

// Counts the places of a warp's way at which its lanes, having come together, go on in more than one direction. All
// ways are followed at once, the lanes with the lowest address first, as blocks that stand further down are where ways
// meet again: true of loops and `if` as the source has them, which -fno-reorder-blocks keeps (Collange, "Stack-less
// SIMT reconvergence at low cost", 2011).
void count_branches(size_t warp) {
  constexpr uintptr_t end = UINTPTR_MAX;
  size_t place[32] = {};
  const auto next = [&](int lane) {
    const std::vector<uintptr_t>& way = ways[warp][static_cast<size_t>(lane)];
    return place[lane] < way.size() ? way[place[lane]] : end;
  };
  const auto lanes = static_cast<int>(std::min<size_t>(32, block.threads.size() - 32 * warp));
  uint32_t together = ~0u;
  for (uintptr_t lowest = 0; lowest != end;) {
    uintptr_t first = 0;
    bool parted = false;
    for (int lane = 0; lane < lanes; ++lane) {
      if (!(together >> lane & 1)) continue;
      parted = parted || (first != 0 && next(lane) != first);
      first = next(lane);
    }
    counts->divergent += parted;
    lowest = end;
    for (int lane = 0; lane < lanes; ++lane) lowest = std::min(lowest, next(lane));
    together = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      if (next(lane) == lowest) together |= 1u << lane, ++place[lane];
    }
  }
  for (std::vector<uintptr_t>& way : ways[warp]) way.clear();
}

// The kernel's name without its arguments, and of a long one the beginning.
std::string short_name(const std::string& name) {
  int depth = 0;
  size_t end = 0;
  for (; end < name.size() && !(name[end] == '(' && depth == 0); ++end)
    depth += (name[end] == '<') - (name[end] == '>');
  return end > 36 ? name.substr(0, 33) + "..." : name.substr(0, end);
}

double ratio(uint64_t a, uint64_t b) { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }

void print_counts() {
  const std::vector<Counts> all = take_counts();
  if (all.empty()) return;
  const int registers = options().registers;
  std::fprintf(stderr, "CUDA emulator: counts, which are not time. Occupancy %s.\n",
               registers ? format("with %d registers per thread", registers).c_str()
                         : "if registers do not limit it (HALFSTEP_EMULATOR_REGISTERS=number per thread)");
  if (!sees_global) std::fputs("Global memory is not counted: build with -D HALFSTEP_EMULATOR_COUNTS=ON.\n", stderr);
  std::fprintf(stderr, "%-36s %8s | %10s %7s %11s %11s | %10s %9s | %9s | %6s %6s\n", "kernel", "launches", "global",
               "sectors", "bytes", "bytes", "shared", "bank", "divergent", "sm_80", "sm_90");
  std::fprintf(stderr, "%-36s %8s | %10s %7s %11s %11s | %10s %9s | %9s |\n", "", "", "requests", "each", "moved",
               "used", "requests", "conflicts", "branches");
  for (const Counts& c : all) {
    const uint64_t requests = c.loads.requests + c.stores.requests, sectors = c.loads.sectors + c.stores.sectors;
    std::fprintf(stderr, "%-36s %8ld | %10lu %7.2f %11lu %11lu | %10lu %9lu | %9lu | %4.0f %% %4.0f %%\n",
                 short_name(c.kernel).c_str(), static_cast<long>(c.launches), static_cast<unsigned long>(requests),
                 ratio(sectors, requests), static_cast<unsigned long>(32 * sectors),
                 static_cast<unsigned long>(c.loads.bytes_used + c.stores.bytes_used),
                 static_cast<unsigned long>(c.shared.requests), static_cast<unsigned long>(c.shared.conflicts),
                 static_cast<unsigned long>(c.divergent), 100 * occupancy(sm_80, c.threads, registers, c.shared_bytes),
                 100 * occupancy(sm_90, c.threads, registers, c.shared_bytes));
  }
}

int log2_of(size_t bytes) { return std::min(static_cast<int>(std::bit_width(bytes)) - 1, 4); }

void count(Kind kind, uint64_t address, size_t bytes, int lane, const void* site, int instruction) {
  Request& all = pending[static_cast<size_t>(running->warp)];
  all.push_back({site, address, static_cast<uint32_t>(bytes), static_cast<uint32_t>(all.size()),
                 static_cast<uint8_t>(lane), kind, instruction});
}

}  // namespace

void begin_counting() {
  if (!options().count) return;
  static const int registered = std::atexit(print_counts);
  (void)registered;
  auto found = std::find_if(all_counts.begin(), all_counts.end(), [](auto& c) { return c.first == launch_now.kernel; });
  if (found == all_counts.end()) {
    found = all_counts.insert(found, {launch_now.kernel, Counts{}});
    found->second.kernel = symbol_name(launch_now.kernel);
  }
  counts = &found->second;
  ++counts->launches;
  counts->threads = static_cast<int>(block.threads.size());
  pending.assign(block.warps.size(), {});
  ways.assign(block.warps.size(), {});
  arrays.clear();
  counting = true;
}

void end_counting() {
  if (!counting) return;
  counting = false;
  counts->shared_bytes = block.dynamic_bytes;
  for (const SharedBuffer* array : arrays) {
    if (array != &dynamic_shared_buffer()) counts->shared_bytes += (array->bytes + 127) / 128 * 128;
  }
}

void count_block() {
  if (counting) ++counts->blocks;
}

void count_product() {
  if (counting) ++counts->instructions[warp_product];
}

void warp_is_together(int warp) {
  if (!counting) return;
  const size_t first = warp < 0 ? 0 : static_cast<size_t>(warp), end = warp < 0 ? pending.size() : first + 1;
  for (size_t w = first; w < end; ++w) {
    count_requests(pending[w]);
    count_branches(w);
  }
}

int shared_instruction(size_t bytes, bool write) { return (write ? shared_store : shared_load) + log2_of(bytes); }

void count_shared(const SharedBuffer& buffer, ptrdiff_t offset, size_t bytes, int lane, const void* site,
                  int instruction) {
  if (!counting) return;
  arrays.insert(&buffer);
  count(shared, reinterpret_cast<uintptr_t>(buffer.at(offset)), bytes, lane, site, instruction);
}

void count_global(const void* at, size_t bytes, bool write, const void* site, bool asynchronous) {
  if (!counting || !running || bytes == 0) return;
  const uint64_t address = address_on_device(at);
  const int instruction = asynchronous ? counted_elsewhere : (write ? 5 : 0) + log2_of(bytes);
  if (address != 0) count(write ? store : load, address, bytes, running->lane, site, instruction);
}

std::vector<Counts> take_counts() {
  std::lock_guard guard(mutex());
  std::vector<Counts> result;
  for (auto& [kernel, of_kernel] : std::exchange(all_counts, {})) result.push_back(std::move(of_kernel));
  return result;
}

extern "C" bool hs_emulator_memory_counts(uint64_t (&totals)[5]) {
  std::lock_guard guard(mutex());
  for (const auto& [kernel, c] : all_counts) {
    totals[0] += c.loads.requests + c.stores.requests;
    totals[1] += c.loads.sectors + c.stores.sectors;
    totals[2] += c.loads.bytes_used + c.stores.bytes_used;
    totals[3] += c.shared.conflicts;
    totals[4] += c.divergent;
  }
  return options().count;
}

// As cuda_occupancy.h of the toolkit computes it, whose constants these are.
int resident_blocks(const Multiprocessor& sm, int threads, int registers, size_t shared_bytes) {
  const int warps = (threads + 31) / 32;
  int blocks = std::min(sm.blocks, sm.warps / warps);
  if (registers > 0) {
    const int of_warp = (registers * 32 + 255) / 256 * 256;  // allocated by 256
    if (registers > 255 || of_warp * ((warps + 3) / 4 * 4) > sm.registers) return 0;
    blocks = std::min(blocks, sm.registers / 4 / of_warp * 4 / warps);  // each of four parts of it serves its own warps
  }
  const int shared_of_block =
      static_cast<int>(shared_bytes + 1024 + 127) / 128 * 128;  // the system takes 1 KiB of each
  return std::min(blocks, sm.shared_bytes / shared_of_block);
}

double occupancy(const Multiprocessor& sm, int threads, int registers, size_t shared_bytes) {
  return ratio(static_cast<uint64_t>(resident_blocks(sm, threads, registers, shared_bytes) * ((threads + 31) / 32)),
               static_cast<uint64_t>(sm.warps));
}

void counted_copy(void* to, const void* from, size_t bytes, bool write) {
  count_global(write ? to : from, bytes, write, __builtin_return_address(0));
  memcpy(to, from, bytes);
}

}  // namespace hs::emulator

extern "C" void __sanitizer_cov_trace_pc() {
  using namespace hs::emulator;
  if (!counting || !running) return;
  const auto site = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ways[static_cast<size_t>(running->warp)][static_cast<size_t>(running->lane)].push_back(site);
}

// In a build with the real ThreadSanitizer these are its own, and global memory is not counted.
#if !defined(__SANITIZE_THREAD__)
#define HS_SITE __builtin_return_address(0)
#define HS_TSAN_ACCESS(function, bytes, write) \
  void __tsan_##function(void* at) { hs::emulator::count_global(at, bytes, write, HS_SITE); }
#define HS_TSAN_ACCESSES(bytes)                       \
  HS_TSAN_ACCESS(read##bytes, bytes, false)           \
  HS_TSAN_ACCESS(write##bytes, bytes, true)           \
  HS_TSAN_ACCESS(unaligned_read##bytes, bytes, false) \
  HS_TSAN_ACCESS(unaligned_write##bytes, bytes, true)
// Host code of the same files, and never a kernel's: the emulator's atomics are plain C++.
#define HS_TSAN_FETCH(bits, operation)                                                                    \
  uint##bits##_t __tsan_atomic##bits##_fetch_##operation(uint##bits##_t* at, uint##bits##_t value, int) { \
    return __atomic_fetch_##operation(at, value, __ATOMIC_SEQ_CST);                                       \
  }
#define HS_TSAN_ATOMICS(bits)                                                                                      \
  HS_TSAN_FETCH(bits, add)                                                                                         \
  HS_TSAN_FETCH(bits, sub)                                                                                         \
  HS_TSAN_FETCH(bits, or)                                                                                          \
  HS_TSAN_FETCH(bits, and)                                                                                         \
  uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t* at, int) {                                       \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                  \
  }                                                                                                                \
  void __tsan_atomic##bits##_store(uint##bits##_t* at, uint##bits##_t value, int) {                                \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                                \
  uint##bits##_t __tsan_atomic##bits##_exchange(uint##bits##_t* at, uint##bits##_t value, int) {                   \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(uint##bits##_t* at, uint##bits##_t* old, uint##bits##_t value, \
                                                    int, int) {                                                    \
    return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
  }
extern "C" {
void __tsan_init() { hs::emulator::sees_global = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
HS_TSAN_ACCESSES(1)
HS_TSAN_ACCESSES(2)
HS_TSAN_ACCESSES(4)
HS_TSAN_ACCESSES(8)
HS_TSAN_ACCESSES(16)
void __tsan_read_range(void* at, size_t bytes) { hs::emulator::count_global(at, bytes, false, HS_SITE); }
void __tsan_write_range(void* at, size_t bytes) { hs::emulator::count_global(at, bytes, true, HS_SITE); }
// Clang's, of structs too.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  hs::emulator::count_global(from, bytes, false, HS_SITE);
  hs::emulator::count_global(to, bytes, true, HS_SITE);
  return memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
void* __tsan_memset(void* to, int value, size_t bytes) { return memset(to, value, bytes); }
HS_TSAN_ATOMICS(8)
HS_TSAN_ATOMICS(32)
HS_TSAN_ATOMICS(64)
}
#endif
