// Work that is done over and over, recorded once as a CUDA graph and then replayed: one call to the driver in place of
// one for each kernel. What is replayed is kernels with the addresses and host values that they were recorded with, so
// everything that changes from one time to the next must be read from device memory.
#pragma once

#include <functional>
#include <memory>

#include "engine/device.h"
#include "engine/storage.h"

namespace hs {

class CapturedWork {
 public:
  // Throws Error: device (there is none), usage (the device is the CPU, which captures nothing).
  explicit CapturedWork(Device device);
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // The first call does `work` as it is: its memory is then there and its kernels have made their choices. The second
  // records it; that and every later call replay. `work` must be the same each time, and must not wait for the device,
  // read from it, or copy from the host: that throws Error (device) with the name of the op, and nothing was done.
  // Storages made inside come from a pool that is kept for this object, so that nothing else lives where it writes.
  void run(const std::function<void()>& work);

 private:
  const Device device_;
  const DeviceRuntime& runtime_;
  std::shared_ptr<MemoryPool> pool_;
  void* graph_ = nullptr;
  bool has_run_ = false;
};

}  // namespace hs
