// What the emulator's own tests share: device arrays, launches, a stream, and reports that are expected.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "emulator/emulator.h"
#include "tests/cuda_emulator/launch.h"

namespace emu {

using hs::emulator::options;

// A fresh emulator with the default options, quiet; as it was before at the end of the test.
struct Fresh {
  hs::emulator::Options before = options();
  Fresh() {
    options() = hs::emulator::Options();
    options().print = false;
    hs::emulator::reset();
  }
  ~Fresh() {
    options() = before;
    hs::emulator::reset();
  }
};

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream); }
  operator cudaStream_t() const { return stream; }
};
struct Event {
  cudaEvent_t event = nullptr;
  Event() { REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess); }
  ~Event() { cudaEventDestroy(event); }
  operator cudaEvent_t() const { return event; }
};

template <class T>
struct Array {
  T* data = nullptr;
  size_t size;
  explicit Array(size_t n) : size(n) { REQUIRE(cudaMalloc(&data, n * sizeof(T)) == cudaSuccess); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    REQUIRE(cudaMemcpy(data, values.data(), size * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> values(size);
    REQUIRE(cudaMemcpy(values.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }
};

template <class T>
struct Pinned {
  T* data = nullptr;
  explicit Pinned(size_t n) {
    REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&data), n * sizeof(T), cudaHostAllocDefault) == cudaSuccess);
  }
  ~Pinned() { cudaFreeHost(data); }
  T& operator[](size_t i) { return data[i]; }
};

// One report, which contains all of these; and calls fail from then on until reset().
inline void check_report(std::initializer_list<const char*> parts) {
  const std::vector<std::string> reports = hs::emulator::take_reports();
  REQUIRE(reports.size() == 1);
  INFO(reports[0]);
  for (const char* part : parts) {
    INFO(part);
    CHECK(reports[0].find(part) != std::string::npos);
  }
  CHECK(cudaDeviceSynchronize() != cudaSuccess);
  hs::emulator::reset();
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
inline bool no_reports() { return hs::emulator::take_reports().empty(); }

}  // namespace emu
