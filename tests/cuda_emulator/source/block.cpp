// Runs the threads of a block as fibers. A thread runs until it has to wait; then the next one that can run does, on
// its own stack. A stack whose thread has finished takes the next thread right away, so a kernel without barriers runs
// as a plain loop, on one stack, without a single switch.
#include "block.h"

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <numeric>

#include "counters.h"
#include "internal.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace hs::emulator {

Block& block = *new Block;
Thread* running = nullptr;

namespace {

struct Group {  // lanes of one warp that have arrived at a collective
  uint32_t mask, arrived;
  int warp;
  const Place* place;
  void* arguments[32];
};

std::string bad_access;
cudaError_t bad_access_error = cudaErrorIllegalAddress;
bool left_after_bad_access = false;

Fiber host_fiber;
std::vector<Fiber*>& idle_fibers = *new std::vector<Fiber*>;
Fiber* active_fiber = nullptr;
Fiber* previous_fiber = nullptr;  // what a new fiber comes from

auto& ready = *new std::vector<int>;  // threads that can run, from ready_head on
size_t ready_head = 0;
auto& groups = *new std::vector<Group>;
int finished_threads = 0;

struct Barrier {
  int arrived = 0, votes = 0, result = 0;
} barrier;

void make_ready(std::vector<int>& threads) {
  if (options().threads == Order::reverse) std::reverse(threads.begin(), threads.end());
  if (ready_head == ready.size()) {
    ready.clear();
    ready_head = 0;
  }
  ready.insert(ready.end(), threads.begin(), threads.end());
}

Thread* next_thread() {
  if (ready_head == ready.size()) return nullptr;
  if (options().threads == Order::random) {
    std::swap(ready[ready_head], ready[ready_head + randomness()() % (ready.size() - ready_head)]);
  }
  return &block.threads[static_cast<size_t>(ready[ready_head++])];
}

void make_all_ready() {
  std::vector<int> all(block.threads.size());
  std::iota(all.begin(), all.end(), 0);
  make_ready(all);
}

// Calls body(lane) for each lane of a mask.
template <class Body>
void for_lanes(uint32_t mask, const Body& body) {
  for (; mask != 0; mask &= mask - 1) body(std::countr_zero(mask));
}

void enter(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  thread.state = Thread::running;
}

void check_watched() {
  const volatile unsigned char*& byte = launch_now.watched;
  if (!byte || *byte == launch_now.watched_value) return;
  report(cudaErrorIllegalAddress, running_kernel() + ": writes memory " + describe(byte));
  byte = nullptr;
}

void fiber_main();

// Leaves the running fiber for the given thread, or for the host if there is none.
void go(Thread* next, bool ends) {
  Fiber& from = *active_fiber;
  Fiber* to = &host_fiber;
  if (next && next->fiber) {
    to = next->fiber;
  } else if (next) {
    if (idle_fibers.empty()) {
      idle_fibers.push_back(new Fiber);
      allocate_stack(*idle_fibers.back());
    }
    to = idle_fibers.back();
    idle_fibers.pop_back();
    prepare(*to, fiber_main);
    next->fiber = to;
    running = next;  // tells fiber_main where to start
  }
  if (ends) idle_fibers.push_back(&from);
  previous_fiber = &from;
  active_fiber = to;
  switch_fiber(from, *to, ends);
}

// NOTE: `ends` above puts the fiber on the idle list while it still runs; it is reused only after it has left.
void fiber_main() {
  arrive(*previous_fiber, previous_fiber == &host_fiber);
  Thread* thread = running;
  for (;;) {
    enter(*thread);
    (*launch_now.body)();
    check_watched();
    check_pending_copies(thread->number);
    if (launch_now.closed) {
      device_fault(cudaErrorLaunchFailure, "has not waited for the launch in front, which may still run");
    }
    thread->state = Thread::finished;
    thread->fiber = nullptr;
    ++finished_threads;
    thread = next_thread();
    if (!thread || thread->fiber) break;
    thread->fiber = active_fiber;
  }
  go(thread, true);
}

void wait_until_ready(Thread& self) {
  check_watched();
  Thread* next = next_thread();
  if (next != &self) go(next, false);
  enter(self);
}

std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += format(end > i ? "%s%d-%d" : "%s%d", text.empty() ? "" : ",", numbers[i], numbers[end]);
    i = end + 1;
  }
  return text;
}

std::string describe(const Place& place) {
  const char* file = strrchr(place.file, '/');
  return format("%s:%d", file ? file + 1 : place.file, place.line);
}

bool same(const Place& a, const Place& b) {
  return &a == &b || (a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0));
}

std::string kernel_and_block() {
  return format("kernel %s, block (%u,%u,%u)", symbol_name(launch_now.kernel).c_str(), blockIdx.x, blockIdx.y,
                blockIdx.z);
}

// No thread can run, but not all have finished: says who waits where.
void report_stall() {
  std::vector<std::pair<std::string, std::vector<int>>> who;
  for (const Thread& thread : block.threads) {
    std::string what = "have exited";
    if (thread.state == Thread::at_barrier) what = "wait at the barrier " + describe(*thread.place);
    if (thread.state == Thread::at_collective) {
      what = format("wait at the warp collective %s for lanes 0x%08x", describe(*thread.place).c_str(), thread.mask);
    }
    auto found = std::find_if(who.begin(), who.end(), [&](auto& entry) { return entry.first == what; });
    if (found == who.end()) found = who.insert(who.end(), {what, {}});
    found->second.push_back(thread.number);
  }
  std::string text;
  for (const auto& [what, threads] : who) {
    text += format("%sthreads %s %s", text.empty() ? "" : "; ", ranges(threads).c_str(), what.c_str());
  }
  report(cudaErrorLaunchFailure, kernel_and_block() + ": the block is stuck: " + text);
}

// Where a thread goes on after an access that the hardware has refused.
void report_bad_access() {
  device_fault(bad_access_error, "%s", bad_access.c_str());
  left_after_bad_access = true;
  go(nullptr, false);
}

}  // namespace

// A kernel compiled for a device that cannot wait has no such call.
void wait_for_launches_before() {
  if (!launch_now.closed || options().code < 90) return;
  running->state = Thread::finished;
  running->fiber = nullptr;
  ++finished_threads;
  active_fiber->abandoned = true;
  go(next_thread(), true);
}

bool run_block() {
  const size_t count = block.threads.size();
  block.first_epoch = ++block.epoch;
  for (size_t i = 0; i < count; ++i) {
    block.threads[i].state = Thread::fresh;
    block.threads[i].fiber = nullptr;
  }
  for (Warp& warp : block.warps) {
    if (warp.time != 0) memset(&warp, 0, sizeof(warp));
  }
  groups.clear();
  barrier = {};
  finished_threads = 0;
  ready.clear();
  ready_head = 0;
  make_all_ready();

  active_fiber = &host_fiber;
  go(next_thread(), false);
  running = nullptr;
  if (finished_threads == static_cast<int>(count)) return true;
  if (!left_after_bad_access) report_stall();
  left_after_bad_access = false;
  for (Thread& thread : block.threads) {  // abandoned in the middle: their stacks can be used again
    if (!thread.fiber) continue;
    thread.fiber->abandoned = true;
    idle_fibers.push_back(thread.fiber);
  }
  return false;
}

void prepare_block(dim3 size, size_t shared_bytes) {
  block.dynamic_bytes = shared_bytes;
  const unsigned count = size.x * size.y * size.z;
  block.threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& t = block.threads[i];
    t.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    t.number = static_cast<int>(i);
    t.lane = t.number % 32;
    t.warp = t.number / 32;
  }
  block.warps.assign((count + 31) / 32, Warp{});
}

bool leave_kernel(int signal, const siginfo_t& info, void* context) {
  if (!running) return false;
  const char* verb = "accesses";
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  auto& registers = machine.gregs;
  verb = registers[REG_ERR] & 2 ? "writes" : "reads";
#else  // what the kernel says of it, QEMU does not: of the instructions that access memory, all but those of one
       // register have L
  if (signal == SIGSEGV) {
    const uint32_t instruction = *reinterpret_cast<const uint32_t*>(machine.pc), opc = instruction >> 22 & 3;
    const bool is_vector = (instruction >> 26 & 1) != 0, is_single = (instruction >> 27 & 7) == 7;
    const bool is_write = is_single ? opc == 0 || (opc == 2 && is_vector) : (opc & 1) == 0;
    verb = is_write ? "writes" : "reads";
  }
#endif
  const bool misaligned = signal != SIGSEGV;  // the trap of -fsanitize=alignment
  bad_access_error = misaligned ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress;
  bad_access = misaligned ? "accesses memory through a pointer that is less aligned than its type"
               : info.si_code == SI_KERNEL
                   ? "accesses memory through a misaligned or impossible pointer"
                   : format("%s memory %s%s", verb, describe(info.si_addr).c_str(),
                            waits_for_launches_before() ? ", before it waits for the launch in front" : "");
  // The thread goes on as if it had called report_bad_access(), below the bytes that belong to a leaf function.
#if defined(__x86_64__)
  constexpr greg_t red_zone = 128;
  registers[REG_RSP] = (registers[REG_RSP] - red_zone) / 16 * 16 - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(report_bad_access);
#else
  machine.sp = machine.sp / 16 * 16;
  machine.pc = reinterpret_cast<uintptr_t>(report_bad_access);
#endif
  return true;
}

std::string running_kernel() {
  if (!running) return "";
  return kernel_and_block() + format(", thread (%u,%u,%u)", threadIdx.x, threadIdx.y, threadIdx.z);
}

void device_fault(int cuda_error, const char* text, ...) {
  if (launch_now.has_fault) return;  // one finding per launch; the rest is mostly its echo
  launch_now.has_fault = true;
  char buffer[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(buffer, sizeof(buffer), text, arguments);
  va_end(arguments);
  report(static_cast<cudaError_t>(cuda_error), running_kernel() + ": " + buffer);
}

void check_vector(const void* at, size_t bytes, bool write) {
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) {
    device_fault(cudaErrorMisalignedAddress, "%s a vector of %zu bytes %s, which is no multiple of its size",
                 write ? "writes" : "reads", bytes, describe(at).c_str());
  }
  // Allocations end at most 15 bytes before a page without access rights: only a vector there can reach behind the end
  // without being caught by the hardware.
  if (reinterpret_cast<uintptr_t>(at) % 4096 < 4096 - 16 || where(at, bytes) != Where::overrun) return;
  device_fault(cudaErrorIllegalAddress, "%s a vector of %zu bytes whose last byte is %s", write ? "writes" : "reads",
               bytes, describe(static_cast<const char*>(at) + bytes - 1).c_str());
}

int lane() { return running->lane; }

int block_barrier(Vote vote, int predicate, const Place& place) {
  Thread& self = *running;
  self.state = Thread::at_barrier;
  self.place = &place;
  barrier.votes += predicate != 0;
  const int all = static_cast<int>(block.threads.size());
  if (++barrier.arrived == all) {
    for (const Thread& other : block.threads) {
      if (!same(*other.place, place)) {
        device_fault(cudaErrorLaunchFailure, "divergent barrier: thread %d waits at %s, thread %d at %s", other.number,
                     describe(*other.place).c_str(), self.number, describe(place).c_str());
        break;
      }
    }
    barrier = {0, 0, barrier.votes};
    ++block.epoch;
    warp_is_together(-1);
    make_all_ready();
  }
  wait_until_ready(self);
  return vote == Vote::count ? barrier.result : vote == Vote::all ? barrier.result == all : barrier.result > 0;
}

void collective(uint32_t mask, void* argument, Perform perform, bool orders_memory, const Place& place) {
  Thread& self = *running;
  if (!(mask >> self.lane & 1)) {
    device_fault(cudaErrorLaunchFailure, "%s: lane %d calls with mask 0x%08x, which does not name it",
                 describe(place).c_str(), self.lane, mask);
    return;
  }
  auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
    return g.warp == self.warp && g.mask == mask && same(*g.place, place);
  });
  if (group == groups.end()) group = groups.insert(groups.end(), Group{mask, 0, self.warp, &place, {}});
  group->arrived |= 1u << self.lane;
  group->arguments[self.lane] = argument;
  self.place = &place;
  self.mask = mask;
  if (group->arrived != mask) {
    self.state = Thread::at_collective;
    wait_until_ready(self);
    return;
  }
  const Group complete = *group;
  groups.erase(group);
  if (orders_memory || options().collectives_order) {
    Warp& warp = block.warps[static_cast<size_t>(self.warp)];
    ++warp.time;
    uint32_t known[32] = {};
    for_lanes(mask, [&](int u) {
      for (int w = 0; w < 32; ++w) known[w] = std::max(known[w], warp.known[u][w]);
    });
    for_lanes(mask, [&](int u) { known[u] = warp.time; });
    for_lanes(mask, [&](int u) { memcpy(warp.known[u], known, sizeof(known)); });
  }
  if (mask == 0xffffffffu) warp_is_together(self.warp);
  if (perform) perform(complete.arguments, mask, place);
  std::vector<int> others;
  for_lanes(mask & ~(1u << self.lane), [&](int u) { others.push_back(self.warp * 32 + u); });
  make_ready(others);  // this lane goes on by itself: one switch less
}

void exchange(void* const (&arguments)[32], uint32_t mask, const Place& place) {
  for_lanes(mask, [&](int u) {
    auto* mine = static_cast<Exchange*>(arguments[u]);
    if (mask >> mine->source & 1) {
      mine->result = static_cast<const Exchange*>(arguments[mine->source])->value;
    } else {
      device_fault(cudaErrorLaunchFailure, "%s: lane %d reads lane %d, which is not in the mask 0x%08x",
                   describe(place).c_str(), u, mine->source, mask);
    }
  });
}

uint32_t ballot(uint32_t mask, bool predicate, const Place& place) {
  struct Ballot {
    bool yes;
    uint32_t result;
  } mine{predicate, 0};
  collective(
      mask, &mine,
      [](void* const(&arguments)[32], uint32_t lanes, const Place&) {
        uint32_t result = 0;
        for_lanes(lanes, [&](int u) { result |= uint32_t{static_cast<Ballot*>(arguments[u])->yes} << u; });
        for_lanes(lanes, [&](int u) { static_cast<Ballot*>(arguments[u])->result = result; });
      },
      false, place);
  return mine.result;
}

}  // namespace hs::emulator
