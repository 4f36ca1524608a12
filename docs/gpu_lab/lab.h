// What the checks of the GPU lab share. A check runs the kernel in LAB_KERNEL, puzzle.cu or solution.cu, on the
// emulator and prints a line for each mistake: a report of the emulator, a result, a count. Exit code 1 if there is
// one.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "docs/gpu_lab/picture.h"
#include "emulator/emulator.h"
#include "tests/cuda_emulator/launch.h"

namespace lab {

using hs::emulator::Counts;

inline int mistakes = 0;

inline void expect(bool condition, const std::string& otherwise) {
  if (condition) return;
  mistakes = 1;
  std::printf("%s\n", otherwise.c_str());
}

// An array on the emulated device. Of `size` elements: not yet written.
template <class T>
class Array {
 public:
  explicit Array(size_t size) : size_(size) { cudaMalloc(&data_, size * sizeof(T)); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  operator T*() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// Runs the kernel in all orders of threads, and returns what one launch has moved. A report of the emulator ends the
// program: what comes after a race is its echo.
template <class... P, class... A>
Counts run(void (*kernel)(P...), dim3 grid, dim3 block, const A&... arguments) {
  hs::emulator::options().count = hs::emulator::options().every_order = true;
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const cudaError_t error = emu::launch(kernel, grid, block, 0, stream, static_cast<P>(arguments)...);
  if (error != cudaSuccess) {  // the emulator has printed why
    hs::emulator::take_counts();
    std::exit(1);
  }
  cudaStreamDestroy(stream);
  const Counts counts = hs::emulator::take_counts().at(0);
  if (std::getenv("LAB_PICTURE")) draw(counts);
  return counts;
}

// Prints the first element that is off by more than `tolerance`.
inline void expect_values(const std::vector<float>& got, const std::vector<float>& expected, double tolerance = 0) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::fabs(got[i] - expected[i]) <= tolerance) continue;  // false for NaN
    return expect(false, "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " +
                             std::to_string(expected[i]) +
                             (std::isnan(got[i]) ? " (nan: never written, or computed from inf)" : ""));
  }
}

// The most that a right kernel may take. Requests to global memory are limited where 16 bytes for each lane are wanted.
struct Limits {
  uint64_t sectors;
  uint64_t requests = UINT64_MAX;
  uint64_t shared_requests = 0;
  uint64_t conflicts = 0;
};
inline void expect_at_most(const char* what, uint64_t got, uint64_t most) {
  expect(got <= most, std::to_string(got) + " " + what + ", expected at most " + std::to_string(most));
}

// Checks the counts of a kernel whose results are right, prints them, and returns what main() does.
inline int finish(const Counts& counts, const Limits& limits) {
  const uint64_t sectors = counts.loads.sectors + counts.stores.sectors;
  const uint64_t requests = counts.loads.requests + counts.stores.requests;
  if (mistakes == 0) {
    expect_at_most("sectors of global memory", sectors, limits.sectors);
    expect_at_most("requests to global memory", requests, limits.requests);
    expect_at_most("requests to shared memory", counts.shared.requests, limits.shared_requests);
    expect_at_most("bank conflicts", counts.shared.conflicts, limits.conflicts);
  }
  std::printf(
      "%s: %lu requests to global memory, %lu sectors; %lu to shared memory, %lu bank conflicts; %lu divergent "
      "branches\n",
      mistakes ? "not yet" : "right", static_cast<unsigned long>(requests), static_cast<unsigned long>(sectors),
      static_cast<unsigned long>(counts.shared.requests), static_cast<unsigned long>(counts.shared.conflicts),
      static_cast<unsigned long>(counts.divergent));
  return mistakes;
}

// 0.25, 0.5, ... below 8, in an order without pattern: sums of a few thousand of them are exact.
inline std::vector<float> numbers(size_t count, unsigned seed = 1) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 27) / 4;
  return values;
}

}  // namespace lab

#include LAB_KERNEL
