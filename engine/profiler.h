// What ran when. Code marks its work with ranges; while a Profiler lives they are kept as spans of time: on a row for
// each thread, and on two for the device's queues of work, there with the times at which the device did it. In a CUDA
// build every range on the host is one of NVTX too, for NVIDIA's own profilers. With neither, a range costs a look at
// two variables.
//
//   void Step::forward() {
//     const Range range("forward");    // until the end of the scope
//     ...
//   }
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/memory.h"

namespace hs {

// Names and details are kept as pointers and must outlive the profile: string literals.
struct ProfileSpan {
  const char* name;
  const char* detail;  // the kernel's variant, or ""
  int64_t number;      // which batch, or -1
  size_t row;
  int depth;          // of enclosing ranges on the same row
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

// From here to the end of the scope, on this thread.
class Range {
 public:
  explicit Range(const char* name, int64_t number = -1);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const char* name_;
  const int64_t number_;
  const uint64_t profile_;  // 0: none was being made when it began
  double begin_ = 0;        // by the process's clock, as everywhere before finish()
};

// The work that a queue of the device is given within the scope: on the CPU the scope itself, on a GPU from when the
// device begins with it to when it ends. Nothing while a step is captured: a graph is one range, where it is replayed.
class DeviceRange {
 public:
  DeviceRange(Device device, Stream stream, const char* name, const char* detail = "");
  ~DeviceRange();
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  void begin();
  void end();

  const Device device_;
  const Stream stream_;
  const char *name_, *detail_;
  uint64_t profile_;
  double begin_ = 0;
  DeviceEvent begin_event_, end_event_;
  std::unique_lock<std::recursive_mutex>
      lock_;  // of the queue, so that no other thread's work comes between the two events
};

class Profiler {
 public:
  // Profiles everything that runs on the device and on any thread. One at a time. REQUIRES: no other lives
  explicit Profiler(Device device, size_t most_spans = 100'000);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Waits for the device. What begins later is not noted any more; what has begun and not ended is left out.
  Profile finish();

  // What this thread's row is called.
  static void name_this_thread(const std::string& name);

 private:
  const Device device_;
  bool finished_ = false;
};

// Called by the file that implements a device with a profiler of its own: each Range begins and ends with these.
void set_range_functions(void (*begin)(const char* name), void (*end)());

}  // namespace hs
