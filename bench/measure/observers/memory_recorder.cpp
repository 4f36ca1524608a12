#include "bench/measure/observers/memory_recorder.h"

#include "engine/storage.h"

namespace hs::bench::measure {

MemoryRecorder::MemoryRecorder(Device device)
    : Observer(Event::storage, Watch::every_thread), device_(device), attached_(*this) {}

BytesByPurpose MemoryRecorder::live_at_start() const {
  // Before taking mutex_: storage() is called with the allocator's lock held.
  const BytesByPurpose now = memory_stats(device_).live_by_purpose;
  const std::lock_guard lock(mutex_);
  return before_first_.value_or(now);
}

std::vector<MemoryEvent> MemoryRecorder::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void MemoryRecorder::storage(Device device, const MemoryEvent& event, const MemoryStats& after) {
  if (device != device_) return;
  const std::lock_guard lock(mutex_);
  if (events_.empty()) {
    before_first_ = after.live_by_purpose;
    size_t& bytes = (*before_first_)[static_cast<size_t>(event.purpose)];
    bytes = event.made ? bytes - event.bytes : bytes + event.bytes;
  }
  events_.push_back(event);
}

}  // namespace hs::bench::measure
