// Profiler: what ran when. Records every range, kernel, upload and replayed graph while it is alive, as spans of time.
// Each thread has a row for its ranges; each queue of the device has a row for its work, with the times at which the
// device did the work.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/observe.h"

namespace hs::bench::measure {

// Names and variants are kept as pointers and must outlive the profile: string literals.
struct ProfileSpan {
  const char* name;
  const char* variant;  // of a kernel, or ""
  int64_t number;       // which batch, or -1
  size_t row;
  int depth;                                // of enclosing spans on the same row
  double begin, end;                        // seconds since the Profiler was constructed
  std::optional<MemoryCounts> counts = {};  // of work
};

struct MemorySample {
  double time;
  BytesByPurpose live;
};

struct Profile {
  double start = 0;                  // on the steady clock: when the Profiler was constructed
  std::vector<std::string> rows;     // "training" is the Profiler's thread; "compute" and "copy" are the device's
  std::vector<ProfileSpan> spans;    // by row, then begin; on a row, any two are nested or disjoint
  std::vector<MemorySample> memory;  // of the device: at the start, and after each storage that was made or freed
  size_t dropped = 0;                // spans beyond max_spans
};

// Watches all threads, and the work and memory of one device. Omits spans that began before it, or have not ended at
// finish(), and captured work: a graph is one span, when it is replayed.
class Profiler : public Observer {
 public:
  explicit Profiler(Device device, size_t max_spans = 100'000);

  // Waits for the device. To be called once.
  Profile finish();

  void range_begins(const Range& range) override;
  void range_ends(const Range& range) override;
  void work_begins(const DeviceWork& work) override;
  void work_ends(const DeviceWork& work, bool failed) override;
  void storage(Device device, const MemoryEvent& event, const MemoryStats& after) override;

 private:
  struct Work {
    double begin = 0;
    DeviceEvent begin_event, end_event;  // not on the CPU
    std::optional<MemoryCounts> counts = {};
  };
  struct PendingSpan {  // its times are known once the device has done the work
    ProfileSpan span;
    Work work;
  };

  double now() const;
  bool has_room();
  size_t row_called(const std::string& name);
  size_t row_of_this_thread();

  const Device device_;
  const size_t max_spans_;
  DeviceEvent start_event_;
  double start_ = 0;
  std::mutex mutex_;  // guards the members below
  Profile profile_;
  std::map<uint64_t, size_t> thread_rows_;
  std::map<const Range*, double> ranges_;    // that have begun
  std::map<const DeviceWork*, Work> works_;  // that have begun
  std::vector<PendingSpan> pending_;
  std::optional<Attached> attached_;
};

}  // namespace hs::bench::measure
