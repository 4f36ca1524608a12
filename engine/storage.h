// Storage: the bytes behind tensors, taken from a caching allocator that counts them.
// Freed blocks are kept in buckets by size and handed out again, because a training step asks for the same sizes every
// time and fresh pages from the operating system cost more than most kernels. A block that is freed while kernels of
// the compute stream still use it may be handed out again at once, because its next user comes later in that stream.
// Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"
#include "engine/memory.h"

namespace hs {

struct MemoryStats {
  size_t live = 0;         // bytes of all storages that exist now, as requested
  size_t peak = 0;         // largest `live` since reset_peak()
  size_t reserved = 0;     // bytes taken from the device: live blocks and cached ones, rounded up to their bucket
  size_t allocations = 0;  // number of storages created so far
  BytesByPurpose live_by_purpose{};  // they add up to `live`
  BytesByPurpose peak_by_purpose{};  // the largest of each since reset_peak(); not all at the same time
  BytesByPurpose at_peak{};          // what `peak` was made of
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

// Off: every storage is an allocation of its own, of the exact size, and freeing gives it back. Tools that watch
// allocations (AddressSanitizer, the CUDA emulator) then see every overrun. REQUIRES: set before the first storage.
void set_caching(bool on);

// Blocks set aside for one user. While a PoolScope is alive on this thread, storages take their blocks from its pool
// (which takes from the device when it has none that fits) and give them back to it, and nobody else gets them: what a
// CUDA graph has written once stays its own until the pool, and every storage from it, is gone.
class MemoryPool;
std::shared_ptr<MemoryPool> make_memory_pool(Device device);

class PoolScope {
 public:
  explicit PoolScope(std::shared_ptr<MemoryPool> pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  std::shared_ptr<MemoryPool> before_;
};

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
  std::shared_ptr<MemoryPool> pool_;  // where the block goes back to
  uint64_t version_ = 0;
  Device device_;
  MemoryPurpose purpose_;
};

}  // namespace hs
