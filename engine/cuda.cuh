// What every .cu file uses of the CUDA runtime: checked calls, the two streams, and the one function that launches
// kernels. Device-side helpers are in kernels/cuda/cuda.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "engine/error.h"

namespace hs::cuda {

// Throws Error (device) with the call and CUDA's own message. The slot that was running adds its name and shapes.
[[noreturn]] void fail(cudaError_t error, const char* call);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(error, call);
}

// Created, with the device, on first use; they throw if there is none. Both are non-blocking: nothing waits for the
// default stream.
cudaStream_t compute_stream();
cudaStream_t copy_stream();

// Throws a sentence that names the running op and `what`, if the step is being captured: `what` would wait for the
// device, read from it or move memory, none of which a graph can replay.
void forbid_in_capture(const std::string& what);

// Whether every launch waits for its kernel (HALFSTEP_CUDA_SYNC=1), so that an error names the kernel that made it.
bool synchronous();

// Launches kernel(args...) on a stream, checked. An empty grid launches nothing: empty tensors need
// no special case. The arguments are converted to the kernel's parameter types here.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const auto with_values = [&](Parameters... values) {
    void* pointers[] = {static_cast<void*>(&values)..., nullptr};
    check(cudaLaunchKernel(kernel, grid, block, pointers, shared_bytes, stream), "launch");
  };
  with_values(static_cast<Parameters>(args)...);
  if (synchronous()) check(cudaStreamSynchronize(stream), "kernel");
}

}  // namespace hs::cuda
