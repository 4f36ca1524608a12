// Storage: the bytes behind tensors, taken from a caching allocator that counts them.
// Freed blocks are kept in buckets by size and handed out again, because a training step asks for the same sizes every
// time and fresh pages from the operating system cost more than most kernels. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device.h"

namespace hs {

struct MemoryStats {
  size_t live = 0;         // bytes of all storages that exist now, as requested
  size_t peak = 0;         // largest `live` since reset_peak()
  size_t reserved = 0;     // bytes taken from the device: live blocks and cached ones, rounded up to their bucket
  size_t allocations = 0;  // number of storages created so far
};

MemoryStats memory_stats(Device device);
void reset_peak(Device device);

// Gives every cached block back to the device. Live storages are not touched.
void release_cached_memory(Device device);

// An upper bound for `live` (0: none), to see how a program behaves when memory ends. Beyond it, allocation throws as
// if the device were full.
void set_memory_limit(Device device, size_t bytes);

// On: every new storage is filled with 0xff bytes (NaN in every float type), so that an output that a kernel forgot to
// write cannot look right. For tests.
void set_poison(bool on);

class Storage {
 public:
  // Throws Error (out_of_memory on the CPU, device elsewhere) that names the bytes asked for, live and peak.
  Storage(Device device, size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Counts the writes through any tensor on this storage; autograd compares it to notice that a saved value changed.
  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  uint64_t version_ = 0;
  Device device_;
};

}  // namespace hs
