// A launch on the emulator as engine/cuda.cuh's launch() does it, for programs without the engine.
#pragma once

#include <tuple>

#include "cuda_runtime.h"

namespace emu {

// Converts the arguments to the kernel's types and packs their addresses.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... args) {
  std::tuple<P...> values(static_cast<P>(args)...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        return cudaLaunchKernel(kernel, grid, block, pointers, shared_bytes, stream);
      },
      values);
}

}  // namespace emu
