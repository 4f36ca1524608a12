// Devices: where tensors live and kernels run. A device is a table of functions, registered once; the engine reaches it
// only through this table. A build without CUDA registers only the CPU, and asking for CUDA throws Error (device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hs {

enum class Device : uint8_t { cpu, cuda };  // where a tensor's bytes are, and where its kernels run
inline constexpr int device_count = 2;      // number of values of Device

const char* name(Device device);  // "cpu" or "cuda"

enum class CopyDirection : uint8_t { to_device, to_host, within_device };  // to the device, back, or on it

// Two queues per device. Kernels and ordinary copies run on `compute`, in order; a loader uploads on `copy`
// concurrently, and events order the two. The CPU runs everything immediately, so its streams and events are no-ops.
enum class Stream : uint8_t { compute, copy };

// Timed events cost the device a little more.
enum class EventTiming : bool { off, on };

// A device's functions. Those that release or destroy ignore errors, the others throw Error (device).
struct DeviceRuntime {
  // Empty if the device can be used, otherwise the reason, as the end of a sentence. The device is probed once.
  std::string (*why_unavailable)();
  // For the records of measurements: name, driver, versions.
  std::vector<std::pair<std::string, std::string>> (*describe)();

  void* (*allocate)(size_t bytes);       // aligned to 256 bytes; nullptr if out of memory
  void (*release)(void* data);           // frees what allocate() returned
  size_t (*free_bytes)();                // of its memory; 0 on the CPU, where it is not known
  void* (*allocate_host)(size_t bytes);  // pinned host memory, which the device reads asynchronously
  void (*release_host)(void* data);      // frees what allocate_host() returned

  void (*fill)(void* data, int byte, size_t bytes);  // sets every byte, on the compute stream
  // In order with the device's kernels. When the call returns, the host may read `to`, and reuse `from` if that is
  // pageable; the device may read memory of allocate_host() until the copy has run.
  void (*copy)(void* to, const void* from, size_t bytes, CopyDirection direction);
  // On the copy stream; the host must wait for an event before it reuses `from`. Asynchronous if `from` is memory of
  // allocate_host(); with other memory the call may block.
  void (*upload)(void* to, const void* from, size_t bytes);
  void (*synchronize)();  // returns when every kernel and copy issued so far has finished

  void* (*create_event)(EventTiming timing);           // nullptr on the CPU
  void (*destroy_event)(void* event);                  // frees an event
  void (*record_event)(void* event, Stream stream);    // happens when the stream's work so far is done
  void (*wait_on_stream)(void* event, Stream stream);  // later work on the stream waits for the event
  void (*wait_on_host)(void* event);                   // returns once it has happened
  // Seconds from one event to another. REQUIRES: both have happened and are timed
  double (*seconds_between)(void* from, void* to);

  // Between begin and end, work on the compute stream is recorded, not run; replay runs all of it. end_capture(false)
  // discards the recording and returns nullptr. The CPU cannot capture (engine/captured_work.h).
  void (*begin_capture)();
  bool (*is_capturing)();              // on this thread
  void* (*end_capture)(bool keep);     // returns a graph for replay()
  void (*replay)(void* graph);         // on the compute stream; does not wait for it
  void (*destroy_graph)(void* graph);  // waits until no replay of it is running
};

// Whether the device is in this build and usable on this machine.
bool is_available(Device device);
// The reason why is_available() is false, as a sentence for the user; empty if it is true.
std::string why_unavailable(Device device);

// Throws Error (device) if this build or machine has no such device.
const DeviceRuntime& runtime(Device device);

// An event that is destroyed with its owner; null on the CPU. Throws Error (device).
struct DestroyEvent {
  const DeviceRuntime* runtime = nullptr;                                // the event's device
  void operator()(void* event) const { runtime->destroy_event(event); }  // frees the event
};
using DeviceEvent = std::unique_ptr<void, DestroyEvent>;            // the owner of an event
inline DeviceEvent make_event(Device device, EventTiming timing) {  // returns one that is not yet recorded
  return {runtime(device).create_event(timing), DestroyEvent{&runtime(device)}};
}

// Pinned host memory that is released with its owner.
struct ReleaseHost {
  const DeviceRuntime* runtime = nullptr;                                 // whose allocate_host() it is of
  void operator()(void* memory) const { runtime->release_host(memory); }  // frees the memory
};
using HostMemory = std::unique_ptr<void, ReleaseHost>;  // the owner
// Returns `bytes` of it. `what`: what they are for, and what to do without, for the message. Throws Error: device,
// out_of_memory.
HostMemory pin_host_memory(Device device, size_t bytes, const char* what);

// Called by a static object in the file that implements the device.
bool register_device(Device device, const DeviceRuntime& table);

}  // namespace hs
