// MemoryCounts: what kernels ask of memory, and where their warps part, where the device is emulated and counts
// (docs/cuda_without_a_gpu.md).
#pragma once

#include <cstdint>
#include <optional>

namespace hs::bench::measure {

struct MemoryCounts {
  uint64_t requests = 0;        // loads and stores of warps in global memory
  uint64_t sectors = 0;         // of 32 bytes, that they touch
  uint64_t bytes_used = 0;      // of them, those that some lane asked for
  uint64_t bank_conflicts = 0;  // in shared memory
  uint64_t divergent = 0;       // branches at which a warp's lanes parted
};
// Of all kernels so far, less `before`; nothing where none are counted. Implemented in profiler.cpp.
std::optional<MemoryCounts> memory_counts(const std::optional<MemoryCounts>& before = MemoryCounts{});

}  // namespace hs::bench::measure
