// Which storages were made and freed.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "engine/observe.h"

namespace hs::bench::measure {

// While it lives, every storage of the device that is made or freed, on whichever thread, is noted: 24 bytes of host
// memory for each. Thread safe.
class MemoryRecorder : public Observer {
 public:
  explicit MemoryRecorder(Device device);

  BytesByPurpose live_at_start() const;
  std::vector<MemoryEvent> events() const;  // so far, in order

  void storage(Device device, const MemoryEvent& event, const MemoryStats& after) override;

 private:
  const Device device_;
  mutable std::mutex mutex_;  // guards the events and what was live before the first
  std::vector<MemoryEvent> events_;
  std::optional<BytesByPurpose> before_first_;
  const Attached attached_;
};

}  // namespace hs::bench::measure
