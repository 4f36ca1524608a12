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
cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config, std::function<void()> thread,
                   std::vector<const void*> pointers);

template <class Argument>
void add_pointers(std::vector<const void*>& pointers, const Argument& argument) {
  for (size_t at = 0; at + sizeof(void*) <= sizeof(Argument); at += sizeof(void*)) {
    memcpy(&pointers.emplace_back(), reinterpret_cast<const char*>(&argument) + at, sizeof(void*));
  }
}
}  // namespace hs::emulator

// Keeps the values of the arguments: the call may return long before the kernel runs.
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "CUDA copies kernel arguments byte by byte");
  const std::tuple<P...> values(static_cast<P>(args)...);
  std::vector<const void*> pointers;
  std::apply([&](const P&... value) { (hs::emulator::add_pointers(pointers, value), ...); }, values);
  return hs::emulator::launch(
      reinterpret_cast<const void*>(kernel), *config, [kernel, values] { std::apply(kernel, values); },
      std::move(pointers));
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
