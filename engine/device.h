// Where bytes live. A device is a table of five functions, registered once; nothing else in the engine asks which
// device it is on. A build without CUDA registers only the CPU, and asking for the other throws exit code 7.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

enum class Device : uint8_t { cpu, cuda };
inline constexpr int device_count = 2;

const char* name(Device device);

struct DeviceRuntime {
  void* (*allocate)(size_t bytes);  // aligned to 256 bytes; nullptr when there is no memory left
  void (*release)(void* data);
  void (*zero)(void* data, size_t bytes);
  // Copies between this device and the host, or within this device; in order with the kernels of this device.
  void (*copy)(void* to, const void* from, size_t bytes);
  void (*synchronize)();  // returns when every kernel and copy issued so far has finished
};

bool is_available(Device device);

// Throws Error (device) if this build or machine has no such device.
const DeviceRuntime& runtime(Device device);

// Called by a static object in the file that implements the device.
bool register_device(Device device, const DeviceRuntime& table);

}  // namespace hs
