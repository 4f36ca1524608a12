// What ran when: every range, kernel, upload and replayed graph while a Profiler lives, as spans of time. Ranges stand
// on a row for each thread; what a queue of the device was given stands on that queue's row, with the times at which
// the device did it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/observe.h"

namespace hs::bench::measure {

// Names and variants are kept as pointers and must outlive the profile: string literals.
struct ProfileSpan {
  const char* name;
  const char* variant;  // of a kernel, or ""
  int64_t number;       // which batch, or -1
  size_t row;
  int depth;          // of enclosing spans on the same row
  double begin, end;  // seconds since the Profiler was made
};

struct MemorySample {
  double time;
  BytesByPurpose live;
};

struct Profile {
  std::vector<std::string> rows;     // "training" is the Profiler's thread; "compute" and "copy" are the device's
  std::vector<ProfileSpan> spans;    // by row, then begin; on a row each lies within another or beside it
  std::vector<MemorySample> memory;  // of the device, after each kernel that changed it; in order
  size_t dropped = 0;                // spans that there was no room for
};

// Watches every thread, and the work of one device. What has begun before, or has not ended at finish(), is left out;
// so is work that is captured: a graph is one span, when it is replayed.
class Profiler : public Observer {
 public:
  explicit Profiler(Device device, size_t most_spans = 100'000);

  // Waits for the device. To be called once.
  Profile finish();

  void range_begins(const Range& range) override;
  void range_ends(const Range& range) override;
  void work_begins(const DeviceWork& work) override;
  void work_ends(const DeviceWork& work, bool failed) override;

 private:
  struct Work {
    double begin = 0;
    DeviceEvent begin_event, end_event;  // not on the CPU
  };
  struct PendingSpan {  // its times are known when the device has done the work
    ProfileSpan span;
    Work work;
  };

  double now() const;
  bool has_room();
  size_t row_called(const std::string& name);
  size_t row_of_this_thread();
  void note_memory();

  const Device device_;
  const size_t most_spans_;
  DeviceEvent start_event_;
  double start_ = 0;
  std::mutex mutex_;  // guards what follows
  Profile profile_;
  std::map<uint64_t, size_t> thread_rows_;
  std::map<const Range*, double> ranges_;    // that have begun
  std::map<const DeviceWork*, Work> works_;  // that have begun
  std::vector<PendingSpan> pending_;
  std::optional<Attached> attached_;
};

}  // namespace hs::bench::measure
