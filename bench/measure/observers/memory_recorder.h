// MemoryRecorder: the storages that were allocated and freed.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "engine/observe.h"

namespace hs::bench::measure {

// While it is alive, every allocation and release of a storage on the device, by any thread, is recorded, in 24 bytes
// of host memory each. Thread safe.
class MemoryRecorder : public Observer {
 public:
  explicit MemoryRecorder(Device device);

  BytesByPurpose live_at_start() const;
  std::vector<MemoryEvent> events() const;  // so far, in order

  void storage(Device device, const MemoryEvent& event, const MemoryStats& after) override;

 private:
  const Device device_;
  mutable std::mutex mutex_;  // guards events_ and before_first_
  std::vector<MemoryEvent> events_;
  std::optional<BytesByPurpose> before_first_;
  const Attached attached_;
};

}  // namespace hs::bench::measure
