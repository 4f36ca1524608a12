#include "kernels/examples/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "engine/device.h"
#include "engine/storage.h"

namespace hs::examples {
namespace {

// Usable pages between two inaccessible ones, and the storage that has them.
struct Fenced {
  uint8_t* first = nullptr;  // the guard page before
  size_t pages = 0;          // usable
  uint8_t* data = nullptr;
  size_t bytes = 0;
};

struct State {
  std::mutex mutex;
  std::map<void*, Fenced> used;                  // by data
  std::map<size_t, std::vector<Fenced>> unused;  // by pages
  bool active = false;
  GuardPages::Side side = GuardPages::Side::behind;
  std::array<char, 300> description{};
  const DeviceRuntime* before = nullptr;
  DeviceRuntime table{};
  struct sigaction segv {
  }, bus{};
};

State& state() {
  static State* const only = new State;  // never destroyed: a fault may come at any time
  return *only;
}

size_t page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Fenced make_fenced(size_t pages) {
  const size_t all = (pages + 2) * page();
  void* memory = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  auto* first = static_cast<uint8_t*>(memory);
  if (mprotect(first + page(), pages * page(), PROT_READ | PROT_WRITE) != 0) return {};
  return {first, pages};
}

void* allocate(size_t bytes) {
  State& s = state();
  if (!s.active) return s.before->allocate(bytes);
  const std::lock_guard lock(s.mutex);
  const size_t pages = std::bit_ceil((bytes + page() - 1) / page());  // few sizes, so that mappings are used again
  auto& unused = s.unused[pages];
  Fenced fenced;
  if (unused.empty()) {
    fenced = make_fenced(pages);
    if (!fenced.first) return nullptr;
  } else {
    fenced = unused.back();
    unused.pop_back();
  }
  fenced.bytes = bytes;
  fenced.data = fenced.first + page();
  if (s.side == GuardPages::Side::behind) fenced.data += pages * page() - bytes;
  s.used[fenced.data] = fenced;
  return fenced.data;
}

void release(void* data) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.used.find(data);
  if (found == s.used.end()) return s.before->release(data);  // made while there was no guard
  s.unused[found->second.pages].push_back(found->second);
  s.used.erase(found);
}

// No lock: allocation happens outside of kernels, so nothing changes the maps now.
void on_fault(int signal, siginfo_t* info, void*) {
  State& s = state();
  const auto* address = static_cast<const uint8_t*>(info->si_addr);
  std::array<char, 500> line{};
  int length = std::snprintf(line.data(), line.size(), "bad address: %s: access at %p, which is beside no storage\n",
                             s.description.data(), info->si_addr);
  bool is_guard = false;
  for (const auto& [data, fenced] : s.used) {
    if (address < fenced.first || address >= fenced.first + (fenced.pages + 2) * page()) continue;
    const bool is_before = address < fenced.data;
    const auto distance = is_before ? fenced.data - address : address - (fenced.data + fenced.bytes);
    length = std::snprintf(line.data(), line.size(), "guard page: %s: access %zd bytes %s of %zu bytes\n",
                           s.description.data(), distance,
                           is_before ? "before the beginning of a storage" : "past the end of a storage", fenced.bytes);
    is_guard = true;
    break;
  }
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, line.data(), static_cast<size_t>(length));
  if (is_guard) _exit(1);
  sigaction(signal, signal == SIGBUS ? &s.bus : &s.segv, nullptr);  // another fault: returning repeats it
}

}  // namespace

GuardPages::GuardPages() {
  State& s = state();
  set_caching(false);
  s.active = true;
  s.side = Side::behind;
  if (!s.before) {  // stays registered, for storages that outlive the guard
    s.before = &runtime(Device::cpu);
    s.table = *s.before;
    s.table.allocate = allocate;
    s.table.release = release;
    register_device(Device::cpu, s.table);
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &s.segv);
  sigaction(SIGBUS, &action, &s.bus);
}

GuardPages::~GuardPages() {
  State& s = state();
  s.active = false;
  sigaction(SIGSEGV, &s.segv, nullptr);
  sigaction(SIGBUS, &s.bus, nullptr);
  for (auto& [pages, all] : s.unused) {
    for (const Fenced& fenced : all) munmap(fenced.first, (fenced.pages + 2) * page());
  }
  s.unused.clear();
}

void GuardPages::set_side(Side side) { state().side = side; }

void GuardPages::set_description(const std::string& s) {
  auto& text = state().description;
  text[s.copy(text.data(), text.size() - 1)] = 0;
}

}  // namespace hs::examples
