#include "engine/device.h"

#include <cstdlib>
#include <cstring>

#include "engine/check.h"

namespace hs {
namespace {

const DeviceRuntime* tables[device_count] = {};

constexpr size_t alignment = 256;

const DeviceRuntime cpu_runtime = {
    .allocate =
        [](size_t bytes) { return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment); },
    .release = [](void* data) { std::free(data); },
    .zero = [](void* data, size_t bytes) { std::memset(data, 0, bytes); },
    .copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); },
    .synchronize = [] {},
};

[[maybe_unused]] const bool cpu_registered = register_device(Device::cpu, cpu_runtime);

}  // namespace

const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

bool is_available(Device device) { return tables[static_cast<int>(device)] != nullptr; }

const DeviceRuntime& runtime(Device device) {
  const DeviceRuntime* table = tables[static_cast<int>(device)];
  if (!table) {
    fail(ExitCode::device, "device {}: not in this build or not on this machine; use --device cpu", name(device));
  }
  return *table;
}

bool register_device(Device device, const DeviceRuntime& table) {
  tables[static_cast<int>(device)] = &table;
  return true;
}

}  // namespace hs
