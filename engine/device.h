// Where bytes live. A device is a table of functions, registered once; nothing else in the engine asks which device it
// is on. A build without CUDA registers only the CPU, and asking for the other throws exit code 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hs {

enum class Device : uint8_t { cpu, cuda };
inline constexpr int device_count = 2;

const char* name(Device device);

enum class CopyDirection : uint8_t { to_device, to_host, within_device };

// Two queues of work per device. Kernels and ordinary copies go to `compute`, in order; a loader uploads on `copy`
// beside them, and events say who waits for whom. The CPU does everything at once, so that its streams and events have
// nothing to do.
enum class Stream : uint8_t { compute, copy };

// Events that keep the time at which they happened cost the device a little more.
enum class EventTiming : bool { off, on };

struct DeviceRuntime {
  // Empty if the device can be used; else why not, as the end of a sentence. The first call looks, the others remember.
  std::string (*why_unavailable)();
  // What a record of a measurement should say: name, driver, versions.
  std::vector<std::pair<std::string, std::string>> (*describe)();

  void* (*allocate)(size_t bytes);  // aligned to 256 bytes; nullptr when there is no memory left
  void (*release)(void* data);
  void* (*allocate_host)(size_t bytes);  // host memory that the device can read while the host goes on ("pinned")
  void (*release_host)(void* data);

  void (*fill)(void* data, int byte, size_t bytes);
  // In order with the kernels of this device, from or to pageable host memory. The host may reuse `from`, or read `to`,
  // when the call returns.
  void (*copy)(void* to, const void* from, size_t bytes, CopyDirection direction);
  // On the copy stream; the host waits for an event before it reuses `from`. Memory of allocate_host() is read while
  // the host goes on; any other is allowed and may take the host's time.
  void (*upload)(void* to, const void* from, size_t bytes);
  void (*synchronize)();  // returns when every kernel and copy issued so far has finished

  void* (*create_event)(EventTiming timing);
  void (*destroy_event)(void* event);
  void (*record_event)(void* event, Stream stream);  // happens when the stream has done its work so far
  void (*wait_on_stream)(void* event, Stream stream);
  void (*wait_on_host)(void* event);
  // From the moment when one happened to that of another. REQUIRES: both have, and are timed
  double (*seconds_between)(void* from, void* to);

  // Between begin and end, work on the compute stream is recorded and not done; replay does all of it again.
  // end_capture(false) throws the recording away and returns nullptr. The CPU cannot (engine/captured_work.h).
  void (*begin_capture)();
  bool (*is_capturing)();  // on this thread
  void* (*end_capture)(bool keep);
  void (*replay)(void* graph);
  void (*destroy_graph)(void* graph);
};

// In this build, and usable on this machine.
bool is_available(Device device);
// Why is_available() is false, as a sentence for a person; empty if it is true.
std::string why_unavailable(Device device);

// Throws Error (device) if this build or machine has no such device.
const DeviceRuntime& runtime(Device device);

// An event that is destroyed with its owner; null on the CPU. Throws Error (device).
struct DestroyEvent {
  const DeviceRuntime* runtime = nullptr;
  void operator()(void* event) const { runtime->destroy_event(event); }
};
using DeviceEvent = std::unique_ptr<void, DestroyEvent>;
inline DeviceEvent make_event(Device device, EventTiming timing) {
  return {runtime(device).create_event(timing), DestroyEvent{&runtime(device)}};
}

// Called by a static object in the file that implements the device.
bool register_device(Device device, const DeviceRuntime& table);

}  // namespace hs
