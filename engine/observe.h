// What watches a run: profiles, traces, records of memory and of gradients are observers, written outside of the engine
// (bench/measure/observers/). The engine says what happens and where, and where nobody observes that costs a look at
// one variable.
//
//   struct CountKernels : Observer {
//     CountKernels() : Observer(Event::work, Watch::this_thread) {}
//     void work_ends(const DeviceWork& work, bool) override { ++count[work.name]; }
//     std::map<std::string, int> count;
//     const Attached attached{*this};  // the last member: attached when the others are there, detached before they go
//   };
//
// Thread safe. What an observer throws in gradient(), work_begins() or work_ends() goes on to whoever caused the event.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "engine/device.h"
#include "engine/memory.h"

namespace hs {

class Tensor;
class Range;
struct MemoryStats;

// The tensors of a kernel's call, inputs first; some may be undefined.
using CallTensors = std::span<const Tensor* const>;

// What a queue of the device is given: the call of a kernel, an upload, the replay of a graph. Names are literals.
struct DeviceWork {
  Device device;
  Stream stream;
  const char* name;
  const char* variant = "";           // of a kernel
  CallTensors tensors = {};           // of a kernel
  const Tensor* workspace = nullptr;  // of a kernel; may be undefined
  bool captured = false;              // recorded for a graph and not done now
};

// One storage made or freed. `op` is what ran on that thread ("" outside of any op); in backward() it is the op whose
// rule runs.
struct MemoryEvent {
  const char* op;
  MemoryPurpose purpose;
  bool made;  // false: freed
  size_t bytes;
};

enum class Event : uint8_t { range = 1, work = 2, storage = 4, gradient = 8 };
constexpr uint8_t operator|(Event a, Event b) { return static_cast<uint8_t>(a) | static_cast<uint8_t>(b); }

class Observer {
 public:
  enum class Watch : bool { this_thread, every_thread };
  Observer(Event event, Watch watch) : Observer(static_cast<uint8_t>(event), watch) {}
  Observer(uint8_t events, Watch watch) : events_(events), watch_(watch), thread_(std::this_thread::get_id()) {}
  virtual ~Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // A range or a piece of work has the same address when it ends. One that began before the observer was attached ends
  // without having begun, and the other way round.
  virtual void range_begins(const Range&) {}
  virtual void range_ends(const Range&) {}
  // On the host, which gives the work to the device; on the CPU it is done in between. Kernels that a kernel calls come
  // inside of it. While one thread is in between, no other one that is observed gives work to that queue.
  virtual void work_begins(const DeviceWork&) {}
  virtual void work_ends(const DeviceWork&, bool /*failed*/) {}
  // Called with the allocator's lock held: it must neither make a storage nor ask for memory_stats(), which `after` is.
  virtual void storage(Device, const MemoryEvent&, const MemoryStats& /*after*/) {}
  // In backward(): the gradient of an op's output, once it is complete and before the op's own rule runs; the last op
  // of the model first. A checkpointed block shows its ops again, after the op "checkpoint" and up to
  // "checkpoint_input".
  virtual void gradient(const char* /*op*/, const Tensor& /*dy*/) {}

 private:
  friend class Observers;
  const uint8_t events_;
  const Watch watch_;
  const std::thread::id thread_;
};

// The observers that are attached, of the whole process.
class Observers {
 public:
  static bool wants(Event event) {
    return (wanted_.load(std::memory_order_relaxed) & static_cast<uint8_t>(event)) != 0;
  }
  static void tell(Event event, const std::function<void(Observer&)>& call);

 private:
  friend class Attached;
  static void attach(Observer& observer);  // throws Error (usage) if there are too many
  static void detach(Observer& observer);  // returns when no thread is inside of it any more
  static inline constinit std::atomic<uint8_t> wanted_ = 0;
};

// REQUIRES: it ends outside of the observer's own functions
class Attached {
 public:
  explicit Attached(Observer& observer) : observer_(observer) { Observers::attach(observer); }
  ~Attached() { Observers::detach(observer_); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  Observer& observer_;
};

// From here to the end of the scope, on this thread: a phase, an op, a batch that is filled.
class Range {
 public:
  explicit Range(const char* name_, int64_t number_ = -1) : name(name_), number(number_) {
    if (Observers::wants(Event::range)) Observers::tell(Event::range, [this](Observer& o) { o.range_begins(*this); });
  }
  ~Range() {
    if (Observers::wants(Event::range)) Observers::tell(Event::range, [this](Observer& o) { o.range_ends(*this); });
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  const char* const name;  // a literal
  const int64_t number;    // which batch or step, or -1
};

// Which op is running on this thread: the first line of every op, `const Op op("relu");`. Errors, the allocator's
// records and profiles read it, so that "out of memory" comes with the name of who asked.
class Op {
 public:
  explicit Op(const char* name) : range_(name), before_(current_) { current_ = name; }
  ~Op() { current_ = before_; }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // "" outside of any op. The variable itself, because a signal handler wants that of another thread.
  static const char* const& current() { return current_; }

 private:
  static inline thread_local const char* current_ = "";
  const Range range_;
  const char* before_;
};

// A piece of work from when it is given to the device until end() or the end of the scope; the latter is a failure.
class WorkRange {
 public:
  explicit WorkRange(const DeviceWork& work) : work_(work) {
    if (Observers::wants(Event::work)) begin();
  }
  ~WorkRange();
  WorkRange(const WorkRange&) = delete;
  WorkRange& operator=(const WorkRange&) = delete;
  void end() {
    if (observed_) end(false);
  }

 private:
  void begin();
  void end(bool failed);
  DeviceWork work_;
  bool observed_ = false;
  std::unique_lock<std::recursive_mutex> lock_;  // of the queue
};

// What profiles call this thread.
void name_this_thread(const std::string& name);
const std::string& name_of_this_thread();  // empty if it has none

// What a kernel chose by itself at run time and a reader of its results wants to know (a library's algorithm for a
// shape), by name. Thread safe.
void note_choice(const std::string& what, const std::string& choice);
std::map<std::string, std::string> noted_choices();

}  // namespace hs
