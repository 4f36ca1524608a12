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
// Whether a kernel whose code can wait may begin before the one in front of it has ended: not with
// HALFSTEP_CUDA_EARLY=0, nor with HALFSTEP_CUDA_SYNC=1.
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

// Whether the code of a kernel that runs on this device has Previous::wait(). It was written for 9.0 or newer, then; a
// newer device may run code for an older one, which the driver compiles from PTX.
static inline bool can_wait(const void* kernel) {
  cudaFuncAttributes code{};
  check(cudaFuncGetAttributes(&code, kernel), "cudaFuncGetAttributes");
  return code.ptxVersion >= 90;
}

// Launches kernel(args...) on a stream, checked. An empty grid launches nothing, so empty tensors need no special case.
// The arguments are converted to the kernel's parameter types here. `static`: each library and each plug-in has its own
// runtime and its own list of architectures, and the linker must not give one the copy of another.
template <class... Parameters, class... Args>
static void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  if constexpr ((std::is_same_v<Parameters, Previous> || ...)) {
    // Asked once: all kernels of a file are compiled for the same architectures.
    static const bool begins = begins_early() && can_wait(reinterpret_cast<const void*>(kernel));
    config.numAttrs = begins ? 1 : 0;
  }
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "launch");
  if (synchronous()) check(cudaStreamSynchronize(stream), "kernel");
}
template <class... Parameters, class... Args>
static void launch(void (*kernel)(Previous, Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, const Args&... args) {
  launch<Previous, Parameters...>(kernel, grid, block, shared_bytes, stream, Previous{}, args...);
}

}  // namespace hs::cuda
