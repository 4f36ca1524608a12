// The CUDA device: the table of engine/device.h over the CUDA runtime. One device, two streams, no default stream.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "engine/cuda.cuh"
#include "engine/device.h"
#include "engine/observe.h"
#include "engine/ranks/exchange.h"
#include "engine/storage.h"

#ifndef HALFSTEP_CUDA_ARCHITECTURES
#define HALFSTEP_CUDA_ARCHITECTURES "emulated"
#endif

namespace hs {
namespace cuda {
namespace {

// The kernel that probe() asks the driver for: if it has no code for this one, it has none for the others.
__global__ void probe_kernel() {}

std::string message(cudaError_t error) {
  return "CUDA error " + std::to_string(static_cast<int>(error)) + ", " + cudaGetErrorString(error);
}

// The first visible device is used (CUDA_VISIBLE_DEVICES picks another). After an error the count is not read: with no
// driver the call returns 35 and leaves the count unchanged.
std::string probe() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    return "no usable CUDA device (" + message(error) + ")";
  }
  if (count == 0) return "no CUDA device is visible";
  if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) return "CUDA device 0: " + message(error);
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (error == cudaSuccess) return "";
  (void)cudaGetLastError();
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return "CUDA device 0: " + message(error);
  const std::string capability = std::to_string(device.major) + std::to_string(device.minor);
  const std::string found = "the device " + std::string(device.name) + " is " + capability;
  if (device.major < 8) return found + ", and 80 or newer is needed";
  return "this build has code for the architectures " HALFSTEP_CUDA_ARCHITECTURES ", and " + found + " (" +
         message(error) + "): configure with -D HALFSTEP_CUDA_ARCHITECTURES=" + capability;
}

const std::string& problem() {
  static const std::string found = probe();
  return found;
}

struct Streams {
  cudaStream_t compute = nullptr, copy = nullptr;
};

const Streams& streams() {
  static const Streams made = [] {
    runtime(Device::cuda);  // throws if there is no device
    Streams s;
    check(cudaStreamCreateWithFlags(&s.compute, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaStreamCreateWithFlags(&s.copy, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return s;
  }();
  return made;
}

cudaStream_t stream_of(Stream stream) { return stream == Stream::compute ? compute_stream() : copy_stream(); }

thread_local bool capturing = false;

// ---- the table ----

std::vector<std::pair<std::string, std::string>> describe() {
  cudaDeviceProp device{};
  int driver = 0, toolkit = 0;
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&toolkit), "cudaRuntimeGetVersion");
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  return {{"name", device.name},
          {"architecture", std::to_string(device.major) + std::to_string(device.minor)},
          {"memory_bytes", std::to_string(device.totalGlobalMem)},
          {"driver", version(driver)},
          {"toolkit", version(toolkit)},
          {"built_for", HALFSTEP_CUDA_ARCHITECTURES}};
}

// Whether an allocation had enough memory.
bool has_succeeded(cudaError_t error, const char* call) {
  if (error != cudaErrorMemoryAllocation) return check(error, call), true;
  (void)cudaGetLastError();
  return false;
}

void* allocate(size_t bytes) {
  forbid_in_capture("allocating " + std::to_string(bytes) + " bytes");
  void* data = nullptr;
  return has_succeeded(cudaMalloc(&data, bytes), "cudaMalloc") ? data : nullptr;
}

// Called from destructors, even at process exit when the driver is gone: errors cannot be reported.
void release(void* data) { (void)cudaFree(data); }

size_t free_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

void* allocate_host(size_t bytes) {
  void* data = nullptr;
  return has_succeeded(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "cudaHostAlloc") ? data : nullptr;
}

void release_host(void* data) { (void)cudaFreeHost(data); }

void fill(void* data, int byte, size_t bytes) {
  check(cudaMemsetAsync(data, byte, bytes, compute_stream()), "cudaMemsetAsync");
}

// Whether a copy from this memory may run after the call has returned: the driver copies pageable memory at once, but
// a device that reads it by itself (Linux's heterogeneous memory management) needs no such copy.
bool is_read_late(const void* memory) {
  static const int reads_pageable = [] {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0), "cudaDeviceGetAttribute");
    return value;
  }();
  if (reads_pageable == 0) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

// Pinned memory, which is read late everywhere, is the caller's to keep.
void copy(void* to, const void* from, size_t bytes, CopyDirection direction) {
  cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
  if (direction == CopyDirection::to_device) kind = cudaMemcpyHostToDevice;
  if (direction == CopyDirection::to_host) kind = cudaMemcpyDeviceToHost;
  if (kind == cudaMemcpyHostToDevice) forbid_in_capture("copying a tensor from the host");
  if (kind == cudaMemcpyDeviceToHost) forbid_in_capture("reading a tensor on the host");
  check(cudaMemcpyAsync(to, from, bytes, kind, compute_stream()), "cudaMemcpyAsync");
  const bool is_late = kind == cudaMemcpyHostToDevice && is_read_late(from);
  if (kind == cudaMemcpyDeviceToHost || is_late)
    check(cudaStreamSynchronize(compute_stream()), "cudaStreamSynchronize");
}

void upload(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copy_stream()), "cudaMemcpyAsync");
}

void synchronize() {
  forbid_in_capture("waiting for the device");
  check(cudaStreamSynchronize(compute_stream()), "cudaStreamSynchronize");
  check(cudaStreamSynchronize(copy_stream()), "cudaStreamSynchronize");
}

void* create_event(EventTiming timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return event;
}

void destroy_event(void* event) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

void record_event(void* event, Stream stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(stream)), "cudaEventRecord");
}

void wait_on_stream(void* event, Stream stream) {
  check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event)), "cudaStreamWaitEvent");
}

void wait_on_host(void* event) {
  forbid_in_capture("waiting for an event");
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}

double seconds_between(void* from, void* to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)),
        "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

// Thread-local mode: concurrent work of other threads (a loader's uploads) does not affect the capture.
void begin_capture() {
  check(cudaStreamBeginCapture(compute_stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capturing = true;
}

// For the error of a capture: on GPUs of compute capability 12.0 one with early launches has failed.
std::string in_capture(const char* call) {
  const char* const cure = ", in a capture; HALFSTEP_CUDA_EARLY=0 makes one without early launches";
  return std::string(call) + (begins_early() ? cure : "");
}

void* end_capture(bool keep) {
  capturing = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(compute_stream(), &graph);
  if (!keep) {
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return nullptr;
  }
  check(ended, in_capture("cudaStreamEndCapture").c_str());
  cudaGraphExec_t executable = nullptr;
  const cudaError_t instantiated = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(instantiated, in_capture("cudaGraphInstantiate").c_str());
  return executable;
}

void replay(void* graph) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), compute_stream()), "cudaGraphLaunch");
}

// The device may still be running it.
void destroy_graph(void* graph) {
  (void)cudaStreamSynchronize(compute_stream());
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

const DeviceRuntime table = {
    .why_unavailable = [] { return problem(); },
    .describe = describe,
    .allocate = allocate,
    .release = release,
    .free_bytes = free_bytes,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .fill = fill,
    .copy = copy,
    .upload = upload,
    .synchronize = synchronize,
    .create_event = create_event,
    .destroy_event = destroy_event,
    .record_event = record_event,
    .wait_on_stream = wait_on_stream,
    .wait_on_host = wait_on_host,
    .seconds_between = seconds_between,
    .begin_capture = begin_capture,
    .is_capturing = [] { return capturing; },
    .end_capture = end_capture,
    .replay = replay,
    .destroy_graph = destroy_graph,
};

// Every host range is also an NVTX range, for NVIDIA's own profilers.
struct NvtxRanges : Observer {
  NvtxRanges() : Observer(Event::range, Watch::every_thread) {}
  void range_begins(const Range& range) override { (void)nvtxRangePushA(range.name); }
  void range_ends(const Range&) override { (void)nvtxRangePop(); }
  const Attached attached{*this};
};

[[maybe_unused]] const bool registered = [] {
#ifdef HALFSTEP_CUDA_EMULATED
  set_caching(false);  // the emulator then sees where each tensor ends
#endif
  static NvtxRanges nvtx;
  return register_device(Device::cuda, table);
}();

}  // namespace

void fail(cudaError_t error, const char* call) {
  (void)cudaGetLastError();
  const std::string op = Op::current();
  throw Error(ExitCode::device,
              (op.empty() ? "" : op + ": ") + message(error) + ", in " + (capturing ? in_capture(call) : call));
}

cudaStream_t compute_stream() { return streams().compute; }
cudaStream_t copy_stream() { return streams().copy; }

void forbid_in_capture(const std::string& what) {
  if (!capturing) return;
  const std::string op = Op::current();
  throw Error(ExitCode::device, (op.empty() ? "a step that is being captured" : op) + ": " + what +
                                    " is not possible while a step is captured as a CUDA graph; do not capture it");
}

static bool is_set(const char* variable, char to) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == to;
}
bool synchronous() {
  static const bool on = is_set("HALFSTEP_CUDA_SYNC", '1');
  return on && !capturing;
}
bool begins_early() {
  static const bool on = !is_set("HALFSTEP_CUDA_SYNC", '1') && !is_set("HALFSTEP_CUDA_EARLY", '0');
  return on;
}

}  // namespace cuda
}  // namespace hs
