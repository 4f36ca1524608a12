// Shared by every .cu file: checked CUDA runtime calls, the two streams, and the one function that launches kernels.
// Device-side helpers are in kernels/cuda/cuda.cuh.
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

// Created on first use; they throw if there is no device. Both are non-blocking: nothing waits for the default stream.
cudaStream_t compute_stream();
cudaStream_t copy_stream();

// If a step is being captured, throws Error (device) that names the running op and `what`, which would wait for the
// device, read from it or move memory: a graph can replay none of these.
void forbid_in_capture(const std::string& what);

// Whether every launch waits for its kernel (HALFSTEP_CUDA_SYNC=1), so that an error names the kernel that caused it.
bool synchronous();

// Launches kernel(args...) on a stream, checked. An empty grid launches nothing, so empty tensors need no special case.
// The arguments are converted to the kernel's parameter types here.
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
