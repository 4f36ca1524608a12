#include "bench/measure/observers/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <tuple>
#include <utility>

#include "engine/storage.h"

namespace hs::bench::measure {
namespace {

// Unlike a std::thread::id, the number is never reused.
uint64_t number_of_this_thread() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t number = ++last;
  return number;
}

const char* row_name(Stream stream) { return stream == Stream::compute ? "compute" : "copy"; }

// REQUIRES: spans are sorted by row, then begin, longer ones first
void count_depths(std::vector<ProfileSpan>& spans) {
  std::vector<const ProfileSpan*> around;
  for (ProfileSpan& span : spans) {
    while (!around.empty() && (around.back()->row != span.row || around.back()->end <= span.begin)) around.pop_back();
    span.depth = static_cast<int>(around.size());
    around.push_back(&span);
  }
}

}  // namespace

Profiler::Profiler(Device device, size_t max_spans)
    : Observer((Event::range | Event::work) | static_cast<uint8_t>(Event::storage), Watch::every_thread),
      device_(device),
      max_spans_(max_spans) {
  runtime(device).synchronize();
  thread_rows_[number_of_this_thread()] = row_called("training");
  row_called(row_name(Stream::compute));
  if (device != Device::cpu) {
    start_event_ = make_event(device, EventTiming::on);
    runtime(device).record_event(start_event_.get(), Stream::compute);
    runtime(device).wait_on_host(start_event_.get());  // both clocks start here
  }
  profile_.start = start_ = now();
  profile_.memory.push_back({now(), memory_stats(device).live_by_purpose});
  attached_.emplace(*this);
}

Profile Profiler::finish() {
  attached_.reset();
  const DeviceRuntime& device = runtime(device_);
  device.synchronize();
  for (PendingSpan& one : pending_) {
    one.span.begin = device.seconds_between(start_event_.get(), one.work.begin_event.get());
    one.span.end = device.seconds_between(start_event_.get(), one.work.end_event.get());
    profile_.spans.push_back(one.span);
  }
  pending_.clear();
  std::ranges::sort(profile_.spans, {},
                    [](const ProfileSpan& span) { return std::tuple(span.row, span.begin, -span.end, span.depth); });
  count_depths(profile_.spans);
  return std::move(profile_);
}

void Profiler::range_begins(const Range& range) {
  const std::lock_guard lock(mutex_);
  ranges_[&range] = now();
}

void Profiler::range_ends(const Range& range) {
  const std::lock_guard lock(mutex_);
  const auto begun = ranges_.extract(&range);
  if (!begun || !has_room()) return;
  profile_.spans.push_back({range.name, "", range.number, row_of_this_thread(), 0, begun.mapped(), now()});
}

void Profiler::work_begins(const DeviceWork& work) {
  if (work.device != device_ || work.captured) return;
  Work begun{now(), {}, {}};
  if (device_ != Device::cpu) {
    begun.begin_event = make_event(device_, EventTiming::on);
    begun.end_event = make_event(device_, EventTiming::on);
    runtime(device_).record_event(begun.begin_event.get(), work.stream);
    begun.counts = memory_counts();
  }
  const std::lock_guard lock(mutex_);
  works_[&work] = std::move(begun);
}

void Profiler::work_ends(const DeviceWork& work, bool /*failed*/) {
  const std::lock_guard lock(mutex_);
  auto begun = works_.extract(&work);
  if (!begun) return;
  if (device_ != Device::cpu) runtime(device_).record_event(begun.mapped().end_event.get(), work.stream);
  if (!has_room()) return;
  const ProfileSpan span{work.name, work.variant,         -1,    row_called(row_name(work.stream)),
                         0,         begun.mapped().begin, now(), memory_counts(begun.mapped().counts)};
  if (device_ == Device::cpu) {
    profile_.spans.push_back(span);
  } else {
    pending_.push_back({span, std::move(begun.mapped())});
  }
}

// With the allocator's lock held: nothing may ask for its counters while it holds mutex_.
void Profiler::storage(Device device, const MemoryEvent& /*event*/, const MemoryStats& after) {
  if (device != device_) return;
  const std::lock_guard lock(mutex_);
  profile_.memory.push_back({now(), after.live_by_purpose});
}

// Seconds since the Profiler was constructed; before start_ is set, since an arbitrary moment.
double Profiler::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() - start_;
}

bool Profiler::has_room() {
  if (profile_.spans.size() + pending_.size() < max_spans_) return true;
  ++profile_.dropped;
  return false;
}

size_t Profiler::row_called(const std::string& name) {
  const auto row = static_cast<size_t>(std::ranges::find(profile_.rows, name) - profile_.rows.begin());
  if (row == profile_.rows.size()) profile_.rows.push_back(name);
  return row;
}

size_t Profiler::row_of_this_thread() {
  const auto [found, is_new] = thread_rows_.try_emplace(number_of_this_thread(), profile_.rows.size());
  if (is_new) {
    const std::string name = name_of_this_thread();
    profile_.rows.push_back(name.empty() ? fmt::format("thread {}", found->second) : name);
  }
  return found->second;
}

}  // namespace hs::bench::measure
