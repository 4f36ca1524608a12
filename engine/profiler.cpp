#include "engine/profiler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <tuple>

#include "engine/captured_work.h"
#include "engine/check.h"
#include "engine/storage.h"

namespace hs {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<void (*)(const char*)> begin_range = nullptr;
std::atomic<void (*)()> end_range = nullptr;

// A span of the device, whose times are known when it has done the work.
struct PendingSpan {
  ProfileSpan span;
  DeviceEvent begin, end;
};

// One profile at a time, with a number, so that a range that outlives its profile does not end in the next one.
struct Recording {
  std::atomic<uint64_t> number = 0;  // 0: none
  std::mutex mutex;                  // guards what follows
  uint64_t last_number = 0;
  double start = 0;
  size_t most_spans = 0;
  Profile profile;
  std::vector<PendingSpan> pending;
  DeviceEvent start_event;
};

Recording& recording() {
  static Recording one;
  return one;
}

// Seconds since the first call.
double now() {
  static const Clock::time_point start = Clock::now();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Recursive, because a kernel may call another one.
std::recursive_mutex& queue_mutex(Stream stream) {
  static std::recursive_mutex mutexes[2];
  return mutexes[static_cast<size_t>(stream)];
}

thread_local std::string thread_name;
// The row of this thread in the profile of this number.
thread_local uint64_t row_number = 0;
thread_local size_t thread_row = 0;

size_t row_called(Profile& profile, const std::string& name) {
  const auto row = static_cast<size_t>(std::ranges::find(profile.rows, name) - profile.rows.begin());
  if (row == profile.rows.size()) profile.rows.push_back(name);
  return row;
}

// REQUIRES: the mutex is held, and this profile is being made
size_t row_of_this_thread(Recording& r) {
  if (row_number == r.number) return thread_row;
  row_number = r.number;
  thread_row = r.profile.rows.size();
  r.profile.rows.push_back(thread_name.empty() ? fmt::format("thread {}", thread_row) : thread_name);
  return thread_row;
}

const char* row_name(Stream stream) { return stream == Stream::compute ? "compute" : "copy"; }

bool has_room(Recording& r) {
  if (r.profile.spans.size() + r.pending.size() < r.most_spans) return true;
  ++r.profile.dropped;
  return false;
}

// Of spans in the order of their rows and beginnings, the longer one first.
void count_depths(std::vector<ProfileSpan>& spans) {
  std::vector<const ProfileSpan*> around;
  for (ProfileSpan& span : spans) {
    while (!around.empty() && (around.back()->row != span.row || around.back()->end <= span.begin)) around.pop_back();
    span.depth = static_cast<int>(around.size());
    around.push_back(&span);
  }
}

void note_memory(Recording& r, Device device) {
  const BytesByPurpose live = memory_stats(device).live_by_purpose;
  if (!r.profile.memory.empty() && r.profile.memory.back().live == live) return;
  r.profile.memory.push_back({now(), live});
}

}  // namespace

Range::Range(const char* name, int64_t number)
    : name_(name), number_(number), profile_(recording().number.load(std::memory_order_acquire)) {
  if (const auto begin = begin_range.load(std::memory_order_relaxed)) begin(name);
  if (profile_ == 0) return;
  begin_ = now();
}

Range::~Range() {
  if (const auto end = end_range.load(std::memory_order_relaxed)) end();
  if (profile_ == 0) return;
  const double end = now();
  Recording& r = recording();
  const std::scoped_lock lock(r.mutex);
  if (r.number != profile_ || !has_room(r)) return;
  r.profile.spans.push_back({name_, "", number_, row_of_this_thread(r), 0, begin_, end});
}

DeviceRange::DeviceRange(Device device, Stream stream, const char* name, const char* detail)
    : device_(device),
      stream_(stream),
      name_(name),
      detail_(detail),
      profile_(CapturedWork::is_capturing() ? 0 : recording().number.load(std::memory_order_acquire)) {
  if (profile_ != 0) begin();
}

DeviceRange::~DeviceRange() {
  if (profile_ == 0) return;
  try {
    end();
  } catch (const Error&) {  // the device has failed; whoever waits for it next is told
  }
}

void DeviceRange::begin() {
  begin_ = now();
  if (device_ == Device::cpu) return;
  lock_ = std::unique_lock(queue_mutex(stream_));
  begin_event_ = make_event(device_, EventTiming::on);
  end_event_ = make_event(device_, EventTiming::on);
  runtime(device_).record_event(begin_event_.get(), stream_);
}

void DeviceRange::end() {
  const double end = now();
  if (device_ != Device::cpu) runtime(device_).record_event(end_event_.get(), stream_);
  Recording& r = recording();
  const std::scoped_lock lock(r.mutex);
  if (r.number != profile_ || !has_room(r)) return;
  const ProfileSpan span{name_, detail_, -1, row_called(r.profile, row_name(stream_)), 0, begin_, end};
  if (device_ == Device::cpu) {
    r.profile.spans.push_back(span);
  } else {
    r.pending.push_back({span, std::move(begin_event_), std::move(end_event_)});
  }
  if (stream_ == Stream::compute) note_memory(r, device_);
}

Profiler::Profiler(Device device, size_t most_spans) : device_(device) {
  runtime(device).synchronize();
  Recording& r = recording();
  const std::scoped_lock lock(r.mutex);
  check(r.number == 0, "a Profiler lives already, there can be one at a time; finish it first");
  r.most_spans = most_spans;
  r.profile = {};
  if (device != Device::cpu) {
    r.start_event = make_event(device, EventTiming::on);
    runtime(device).record_event(r.start_event.get(), Stream::compute);
    runtime(device).wait_on_host(r.start_event.get());  // both clocks start here
  }
  r.start = now();
  r.number = ++r.last_number;
  row_number = r.number;
  thread_row = row_called(r.profile, "training");
  row_called(r.profile, row_name(Stream::compute));
  note_memory(r, device);
}

Profiler::~Profiler() {
  if (finished_) return;
  try {
    finish();
  } catch (const Error&) {  // the device has failed, and nobody asked for the profile
  }
}

Profile Profiler::finish() {
  finished_ = true;
  Recording& r = recording();
  Profile profile;
  std::vector<PendingSpan> pending;
  DeviceEvent start_event;
  double start = 0;
  {
    const std::scoped_lock lock(r.mutex);
    r.number = 0;
    profile = std::exchange(r.profile, {});
    pending = std::exchange(r.pending, {});
    start_event = std::exchange(r.start_event, {});
    start = r.start;
  }
  const DeviceRuntime& device = runtime(device_);
  device.synchronize();
  for (ProfileSpan& span : profile.spans) {
    span.begin -= start;
    span.end -= start;
  }
  for (MemorySample& sample : profile.memory) sample.time -= start;
  for (PendingSpan& one : pending) {
    one.span.begin = device.seconds_between(start_event.get(), one.begin.get());
    one.span.end = device.seconds_between(start_event.get(), one.end.get());
    profile.spans.push_back(one.span);
  }
  std::ranges::sort(profile.spans, {},
                    [](const ProfileSpan& span) { return std::tuple(span.row, span.begin, -span.end, span.depth); });
  count_depths(profile.spans);
  return profile;
}

void Profiler::name_this_thread(const std::string& name) { thread_name = name; }

void set_range_functions(void (*begin)(const char* name), void (*end)()) {
  begin_range = begin;
  end_range = end;
}

}  // namespace hs
