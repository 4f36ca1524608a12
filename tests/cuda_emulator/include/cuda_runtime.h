// Stand-in for cuda_runtime.h: the runtime API, the device language (emulator/device.h) and the typed templates that
// the real header adds for C++.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "emulator/device.h"

namespace hs::emulator {
// Checks the limits and queues one launch; `thread` is the kernel with its arguments, called once per thread, and
// `pointers` are values among them that may be pointers.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> thread, std::vector<const void*> pointers);

inline void add_pointers(std::vector<const void*>& pointers, const void* argument, size_t bytes) {
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    memcpy(&pointers.emplace_back(), static_cast<const char*>(argument) + at, sizeof(void*));
  }
}
}  // namespace hs::emulator

// Keeps the types of the arguments, and copies their values: the call may return long before the kernel runs.
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** args, size_t shared_bytes = 0,
                             cudaStream_t stream = nullptr) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "CUDA copies kernel arguments byte by byte");
  return [&]<size_t... I>(std::index_sequence<I...>) {
    std::tuple<P...> values(*static_cast<const P*>(args[I])...);
    std::vector<const void*> pointers;
    (hs::emulator::add_pointers(pointers, args[I], sizeof(P)), ...);
    return hs::emulator::launch(
        reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream,
        [kernel, values] { std::apply(kernel, values); }, std::move(pointers));
  }
  (std::index_sequence_for<P...>());
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned int flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
