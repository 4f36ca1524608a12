// Repeated work, recorded once as a CUDA graph and then replayed: one driver call instead of one per kernel. A replay
// runs the kernels with the addresses and host values of the recording, so everything that changes between runs must be
// read from device memory.
#pragma once

#include <functional>
#include <memory>

#include "engine/device.h"
#include "engine/storage.h"

namespace hs {

class CapturedWork : NonCopyable {  // one graph, and the memory that it writes; not thread safe
 public:
  // Throws Error: device (there is none), usage (the device is the CPU, which captures nothing).
  explicit CapturedWork(Device device);
  ~CapturedWork();

  // The first call runs `work` normally, which allocates its memory and lets its kernels choose their algorithms. The
  // second records it; that and every later call replay. `work` must be the same each time, and must not wait for the
  // device, read from it, or copy from the host: that throws Error (device) with the name of the op, and nothing has
  // run. Storages created inside come from a pool reserved for this object.
  void run(const std::function<void()>& work);

 private:
  const Device device_;
  const DeviceRuntime& runtime_;
  std::shared_ptr<MemoryPool> pool_;
  void* graph_ = nullptr;
  bool has_run_ = false;
};

}  // namespace hs
