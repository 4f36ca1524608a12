// What the parts of the emulator share. One mutex guards everything: device work runs inside API calls, on the thread
// that made the call, one piece at a time.
#pragma once

#include <csignal>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "emulator/emulator.h"

namespace hs::emulator {

std::recursive_mutex& mutex();
std::mt19937_64& randomness();
// True with a chance of 1 in n.
inline bool chance(int n) { return randomness()() % static_cast<uint64_t>(n) == 0; }

// --- errors.cpp ---
// A finding: kept for take_reports(), printed, and from now on every API call returns `code`, as after a fault on a
// real device.
void report(cudaError_t code, const std::string& text);
cudaError_t sticky_error();
cudaError_t remember(cudaError_t error);  // as the last error of this host thread, if it is one
std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
// "void relu<float>(...)" for a kernel, "...::tile" for a static array; an address where the file has no symbols.
std::string symbol_name(const void* address);

// Every entry point of the API: lock, fail if there is no device or an earlier fault, else run the body.
template <class Body>
cudaError_t api(Body&& body) {
  std::lock_guard guard(mutex());
  if (options().no_device) return remember(cudaErrorInsufficientDriver);
  if (sticky_error() != cudaSuccess) return remember(sticky_error());
  cudaError_t error = body();
  if (error == cudaSuccess) error = sticky_error();  // work that ran inside the call has failed
  return remember(error);
}

// --- memory.cpp ---
// Device memory has no access rights, but for the allocations that device work uses while one of these is alive. So a
// host that follows a device pointer gets a SIGSEGV, as it would on a real machine.
class DeviceAccess {
 public:
  // Opens the allocations that these point into; others are opened when the work gets there. Pointers to other memory
  // are ignored.
  DeviceAccess(std::initializer_list<const void*> pointers);
  void open(const void* const* pointers, size_t count);
  ~DeviceAccess();
};
enum class Where { host, device, overrun };  // overrun: in device memory, but not inside one allocation
Where where(const void* pointer, size_t bytes);
// Up to 256 also if it would be on a device, where an allocation starts at a multiple of 256.
bool is_aligned(const void* pointer, size_t to);
bool is_pinned(const void* pointer, size_t bytes);
// The first byte beside an open allocation that has been written, or null; all such bytes are as before again.
const volatile unsigned char* find_overwritten();
std::string describe(const volatile void* address);  // "4 bytes past the end of an allocation of 252 bytes"
void forget_failures();

// --- device.cpp ---
void forget_launches();  // every kernel is loaded anew

// --- streams.cpp ---
using Work = std::function<void()>;
// Appends to the stream, or to the graph that it is capturing.
cudaError_t enqueue(cudaStream_t stream, Work work);
bool is_live(cudaStream_t stream);
void drain();  // runs everything that is queued
// For work that waits for something outside of the device: it is called again later, and its stream does not go on.
void not_finished();
void forget_queues();

// --- graph.cpp ---
struct Capture;
// Null if the stream is not capturing.
Capture* capture_of(cudaStream_t stream);
cudaError_t add_node(Capture* capture, cudaStream_t stream, Work work);
std::vector<int> frontier(Capture* capture, cudaStream_t stream);
// The stream waits for nodes of a capture: it joins that capture.
cudaError_t join(Capture* capture, cudaStream_t stream, const std::vector<int>& nodes);
// For calls that are not allowed while capturing: invalidates what they disturb.
cudaError_t forbid_in_capture(cudaStream_t stream);  // synchronising with one stream
cudaError_t forbid_in_any_capture();                 // synchronising with all
cudaError_t unsafe_in_capture();                     // allocation, event query: depends on the capture's mode
void forget_captures();

// --- block.cpp, launch.cpp ---
std::string running_kernel();  // with block and thread; empty outside
// `pointers`: values among the kernel's arguments that may be pointers.
// `early`: the launch in front may not have ended until cudaGridDependencySynchronize(). So first all threads run as
// far as that, with global memory closed, and then the launch runs from its beginning.
void run_grid(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, bool early,
              const std::function<void()>& thread, const std::vector<const void*>& pointers);
// Whether the running kernel may not use global memory yet.
bool waits_for_launches_before();
// What -fsanitize=alignment ends in.
#if defined(__aarch64__)
constexpr int trap_signal = SIGTRAP;
#else
constexpr int trap_signal = SIGILL;
#endif
// For the handler of SIGSEGV and trap_signal: if a kernel runs, makes its thread report the access and leave the block
// for good.
bool leave_kernel(int signal, const siginfo_t& info, void* context);

}  // namespace hs::emulator
