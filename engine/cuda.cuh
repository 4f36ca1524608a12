// Shared by every .cu file: checked CUDA runtime calls, the two streams, and the one function that launches kernels.
// Device-side helpers are in kernels/cuda/cuda.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

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
// Whether a kernel may begin before the one in front of it has ended: on sm_90 and newer, without HALFSTEP_CUDA_SYNC=1.
bool begins_early();

// The first parameter of a kernel that may begin early (programmatic dependent launch): while the one in front of it
// ends, its blocks are already in place. launch() gives it.
struct Previous {
  // Waits until every launch before this one has ended and what it wrote can be seen; the next one may be put in place
  // meanwhile. The first statement of the kernel, for all threads: before it nothing may be read or written that
  // another kernel writes or reads.
  __device__ __forceinline__ void wait() const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
  }
};

// Launches kernel(args...) on a stream, checked. An empty grid launches nothing, so empty tensors need no special case.
// The arguments are converted to the kernel's parameter types here.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr bool can_begin_early = (std::is_same_v<Parameters, Previous> || ...);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = can_begin_early && begins_early() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "launch");
  if (synchronous()) check(cudaStreamSynchronize(stream), "kernel");
}
template <class... Parameters, class... Args>
void launch(void (*kernel)(Previous, Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            const Args&... args) {
  launch<Previous, Parameters...>(kernel, grid, block, shared_bytes, stream, Previous{}, args...);
}

}  // namespace hs::cuda
