// Observers watch a run: profiles, traces, and records of memory and gradients, implemented outside the engine
// (bench/measure/observers/). The engine reports what happens and where; an event that nothing observes costs one
// atomic load.
//
// Thread safe. An exception from gradient(), work_begins() or work_ends() propagates to the code that caused the event.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "engine/device.h"
#include "engine/storage.h"

namespace hs {

class Tensor;
class Range;
struct MemoryStats;

// The tensors of a kernel call, inputs first; some may be undefined.
using CallTensors = std::span<const Tensor* const>;

// One item of work on a device queue: a kernel call, an upload, a graph replay. Names are literals.
struct DeviceWork {
  Device device;
  Stream stream;                      // the queue that it runs on
  const char* name;                   // the slot's, or what else it is: "graph"
  const char* variant = "";           // of a kernel
  CallTensors tensors = {};           // of a kernel
  const Tensor* workspace = nullptr;  // of a kernel; may be undefined
  bool captured = false;              // recorded for a graph, not run now
};

// One storage created or freed. `op` is the op running on that thread ("" outside of any op); in backward() it is the
// op whose rule runs.
struct MemoryEvent {
  const char* op;
  MemoryPurpose purpose;  // the storage's
  bool made;              // false: freed
  size_t bytes;           // as requested
  const void* data;       // its address: no other storage has it while this one lives
};

// What observers can watch; bits, so that | makes a set.
enum class Event : uint8_t { range = 1, work = 2, storage = 4, gradient = 8 };
// The set of both.
constexpr uint8_t operator|(Event a, Event b) { return static_cast<uint8_t>(a) | static_cast<uint8_t>(b); }

// What a class derives from to watch a run. Example:
//   struct CountKernels : Observer {
//     CountKernels() : Observer(Event::work, Watch::this_thread) {}
//     void work_ends(const DeviceWork& work, bool) override { ++count[work.name]; }
//     std::map<std::string, int> count;
//     const Attached attached{*this};  // the last member: attached after the others exist, detached before they go
//   };
class Observer : NonCopyable {
 public:
  enum class Watch : bool { this_thread, every_thread };                                // whose events are reported
  Observer(Event event, Watch watch) : Observer(static_cast<uint8_t>(event), watch) {}  // for one kind of event
  Observer(uint8_t events, Watch watch) : events_(events), watch_(watch), thread_(std::this_thread::get_id()) {}
  virtual ~Observer() = default;

  // A range or a piece of work has the same address at its end. One that began before the observer was attached is
  // reported only at its end, and one that ends after it was detached only at its begin.
  virtual void range_begins(const Range&) {}
  virtual void range_ends(const Range&) {}  // see range_begins()
  // Called on the host before and after it submits the work; on the CPU the work runs in between. A kernel that another
  // kernel calls is nested in it. On a GPU, no other observed thread submits work to that queue in between.
  virtual void work_begins(const DeviceWork&) {}
  virtual void work_ends(const DeviceWork&, bool /*failed*/) {}  // see work_begins()
  // Called with the allocator's lock held: must neither create a storage nor call memory_stats(), which `after` is.
  virtual void storage(Device, const MemoryEvent&, const MemoryStats& /*after*/) {}
  // In backward(): the gradient of an op's output, once it is complete and before the op's own rule runs; the model's
  // last op comes first. The ops of a checkpointed block come after the op "checkpoint" and up to "checkpoint_input".
  virtual void gradient(const char* /*op*/, const Tensor& /*dy*/) {}

 private:
  friend class Observers;
  const uint8_t events_;
  const Watch watch_;
  const std::thread::id thread_;
};

// The attached observers of the process.
class Observers {
 public:
  static bool wants(Event event) {  // whether any observer watches it: one atomic load
    return (wanted_.load(std::memory_order_relaxed) & static_cast<uint8_t>(event)) != 0;
  }
  static void tell(Event event, const auto& call) {  // call(observer) for each observer of it
    if (wants(event)) tell_all(event, call);
  }

 private:
  friend class Attached;
  static void attach(Observer& observer);  // throws Error (usage) if there are too many
  static void detach(Observer& observer);  // returns once no thread is inside it
  static void tell_all(Event event, const std::function<void(Observer&)>& call);
  static inline constinit std::atomic<uint8_t> wanted_ = 0;
};

// Attaches an observer while it is alive. REQUIRES: not destroyed inside one of the observer's own functions
class Attached : NonCopyable {
 public:
  explicit Attached(Observer& observer) : observer_(observer) { Observers::attach(observer); }  // throws Error (usage)
  ~Attached() { Observers::detach(observer_); }

 private:
  Observer& observer_;
};

// From its construction to the end of the scope, on this thread: a phase, an op, the filling of a batch.
class Range : NonCopyable {
 public:
  explicit Range(const char* name_, int64_t number_ = -1) : name(name_), number(number_) {  // name_: a literal
    Observers::tell(Event::range, [this](Observer& o) { o.range_begins(*this); });
  }
  ~Range() {
    Observers::tell(Event::range, [this](Observer& o) { o.range_ends(*this); });
  }

  const char* const name;  // a literal
  const int64_t number;    // which batch or step, or -1
};

// Names the op running on this thread: the first line of every op is `const Op op("relu");`. Errors, memory records and
// profiles read it, so "out of memory" names the op that asked.
class Op : public Range {
 public:
  explicit Op(const char* name_) : Range(name_), before_(current_) { current_ = name_; }  // name_: a literal
  ~Op() { current_ = before_; }

  // "" outside of any op. The variable itself, because a signal handler reads another thread's.
  static const char* const& current() { return current_; }

 private:
  static inline thread_local const char* current_ = "";
  const char* before_;
};

// A piece of work, from its submission until end(); without end(), it has failed at the end of the scope.
class WorkRange : NonCopyable {
 public:
  explicit WorkRange(const DeviceWork& work) : work_(work) {  // begins the work
    if (Observers::wants(Event::work)) begin();
  }
  ~WorkRange() {
    if (observed_) fail();
  }
  void end() {  // the work was submitted
    if (observed_) end(false);
  }

 private:
  void begin();
  void end(bool failed);
  void fail() noexcept;
  DeviceWork work_;
  bool observed_ = false;
  std::unique_lock<std::recursive_mutex> lock_;  // of the queue
};

// The name of this thread in profiles, cut after 31 characters.
void name_this_thread(std::string_view name);
std::string name_of_this_thread();  // empty if it has none

// Records a choice that a kernel made at run time and that explains its results (a library's algorithm for a shape), by
// name. Thread safe.
void note_choice(const std::string& what, const std::string& choice);
std::map<std::string, std::string> noted_choices();  // all so far, by name

}  // namespace hs
