// A launch on the emulator as engine/cuda.cuh's launch() does it, for programs without the engine.
#pragma once

#include "cuda_runtime.h"

namespace emu {

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... args) {
  const cudaLaunchConfig_t config{grid, block, shared_bytes, stream, nullptr, 0};
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

}  // namespace emu
