#include "engine/device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "engine/check.h"

namespace hs {
namespace {

const DeviceRuntime* tables[device_count] = {};

// Large blocks ask for large pages: with pages of 4 KiB, kernels that walk down columns look up one at every step.
void* allocate_aligned(size_t bytes) {
  constexpr size_t small = 256, large_page = size_t{1} << 21;
  void* data = nullptr;
  if (::posix_memalign(&data, bytes < large_page ? small : large_page, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  if (bytes >= large_page) ::madvise(data, bytes, MADV_HUGEPAGE);  // a wish, which the system may not grant
#endif
  return data;
}

const DeviceRuntime cpu_runtime = {
    .why_unavailable = [] { return std::string(); },
    .describe = [] { return std::vector<std::pair<std::string, std::string>>(); },
    .allocate = allocate_aligned,
    .release = std::free,
    .free_bytes = [] { return size_t{0}; },
    .allocate_host = allocate_aligned,
    .release_host = std::free,
    .fill = [](void* data, int byte, size_t bytes) { std::memset(data, byte, bytes); },
    .copy = [](void* to, const void* from, size_t bytes, CopyDirection) { std::memcpy(to, from, bytes); },
    .upload = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
    .synchronize = [] {},
    .create_event = [](EventTiming) -> void* { return nullptr; },
    .destroy_event = [](void*) {},
    .record_event = [](void*, Stream) {},
    .wait_on_stream = [](void*, Stream) {},
    .wait_on_host = [](void*) {},
    .seconds_between = [](void*, void*) { return 0.0; },
    .begin_capture = [] {},
    .is_capturing = [] { return false; },
    .end_capture = [](bool) -> void* { return nullptr; },
    .replay = [](void*) {},
    .destroy_graph = [](void*) {},
};

[[maybe_unused]] const bool cpu_registered = register_device(Device::cpu, cpu_runtime);

}  // namespace

const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

std::string why_unavailable(Device device) {
  const DeviceRuntime* table = tables[static_cast<int>(device)];
  return table ? table->why_unavailable() : "this build has no " + std::string(name(device));
}

bool is_available(Device device) { return why_unavailable(device).empty(); }

const DeviceRuntime& runtime(Device device) {
  const DeviceRuntime* table = tables[static_cast<int>(device)];
  if (table && (device == Device::cpu || table->why_unavailable().empty())) return *table;
  fail(ExitCode::device, "device {}: {}; use the cpu", name(device), why_unavailable(device));
}

HostMemory pin_host_memory(Device device, size_t bytes, const char* what) {
  const DeviceRuntime& table = runtime(device);
  HostMemory memory(table.allocate_host(bytes), ReleaseHost{&table});
  if (!memory) fail(ExitCode::out_of_memory, "no {} bytes of host memory can be pinned for {}", bytes, what);
  return memory;
}

bool register_device(Device device, const DeviceRuntime& table) {
  tables[static_cast<int>(device)] = &table;
  return true;
}

}  // namespace hs
