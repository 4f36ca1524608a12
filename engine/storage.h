// Storage: the bytes behind tensors, from a caching allocator that counts them. Freed blocks are kept in buckets by
// size and reused, because every training step asks for the same sizes and fresh pages from the operating system cost
// more than most kernels. A block that is freed while kernels of the compute stream still use it may be reused
// immediately, because its next user comes later in that stream. Thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"
#include "engine/non_copyable.h"

namespace hs {

// Every storage has one purpose from its creation until it is freed:
//   parameters   the parameters' values, and their copies in 16 bits
//   gradients    the parameters' gradients, and what backward() passes from op to op
//   optimizer    its state, the loss scale, step counter and learning rate
//   activations  results of forward ops, and what they save for backward; those of a checkpointed segment are counted
//                again when it is recomputed
//   workspace    scratch memory of one kernel call
//   loader       batches, on the host and on the device
//   other        anything else: the losses kept for the log, tensors created by the user
enum class MemoryPurpose : uint8_t { parameters, gradients, optimizer, activations, workspace, loader, other };
inline constexpr size_t memory_purposes = 7;  // number of purposes
const char* name(MemoryPurpose purpose);      // "parameters"

// Bytes of each purpose, indexed with static_cast<size_t>(purpose).
using BytesByPurpose = std::array<size_t, memory_purposes>;

// Storages created on this thread while the scope is alive have this purpose. Scopes nest.
class MemoryPurposeScope : NonCopyable {
 public:
  explicit MemoryPurposeScope(MemoryPurpose purpose);  // begins the scope
  ~MemoryPurposeScope();

  static MemoryPurpose current();  // what a storage created now would get

 private:
  const int before_;
};

// What the allocator of one device has counted.
struct MemoryStats {
  size_t live = 0;         // bytes of all storages that exist now, as requested
  size_t peak = 0;         // largest `live` since reset_peak()
  size_t reserved = 0;     // bytes allocated from the device: live and cached blocks, rounded up to their bucket
  size_t allocations = 0;  // number of storages created so far
  BytesByPurpose live_by_purpose{};  // they add up to `live`
  BytesByPurpose peak_by_purpose{};  // the peak of each since reset_peak(); not all at the same time
  BytesByPurpose at_peak{};          // `live_by_purpose` at the time of `peak`
};

MemoryStats memory_stats(Device device);  // a copy of the counters
void reset_peak(Device device);           // sets the peaks to what is live

// Returns every cached block to the device. Live storages are not affected.
void release_cached_memory(Device device);

// Sets an upper bound for `live` (0: none), to test what a program does when memory runs out. Beyond it, allocation
// throws as if the device were full.
void set_memory_limit(Device device, size_t bytes);

// On: every new storage is filled with 0xff bytes (NaN in every float type), so that an output that a kernel forgot to
// write cannot look right. For tests.
void set_poison(bool on);

// Off: every storage is a separate allocation of the exact size, and freeing it returns it to the device, so tools that
// watch allocations (AddressSanitizer, the CUDA emulator) see every overrun. REQUIRES: set before the first storage.
void set_caching(bool on);

// Blocks reserved for one owner. While a PoolScope is alive on this thread, storages get their blocks from its pool (or
// cached or new ones, if none fits) and return them to it; no other allocation can get them. So what a CUDA graph
// writes stays its own until the pool, and every storage from it, is gone; then its blocks are cached for everybody.
class MemoryPool;
std::shared_ptr<MemoryPool> make_memory_pool(Device device);  // an empty one, for a PoolScope

class PoolScope : NonCopyable {  // storages of this thread come from a pool; scopes nest
 public:
  explicit PoolScope(std::shared_ptr<MemoryPool> pool);  // nullptr: no pool
  ~PoolScope();

 private:
  std::shared_ptr<MemoryPool> before_;
};

class Storage : NonCopyable {  // a block of memory on one device
 public:
  // Throws Error (out_of_memory on the CPU, device elsewhere) that names the bytes requested, live and peak.
  Storage(Device device, size_t bytes);
  // Memory of somebody else, on the CPU, which `owner` keeps alive. It is not counted.
  Storage(void* data, size_t bytes, std::shared_ptr<const void> owner);
  ~Storage();

  void* data() const { return data_; }       // nullptr if bytes() is 0
  size_t bytes() const { return bytes_; }    // as requested
  Device device() const { return device_; }  // where the bytes are

  // Counts the writes through any tensor on this storage; autograd compares it to detect that a saved value changed.
  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }  // called for each write

 private:
  void* data_ = nullptr;
  size_t bytes_;
  std::shared_ptr<MemoryPool> pool_;   // which the block returns to
  std::shared_ptr<const void> owner_;  // of memory that is not ours; nullptr: it is
  uint64_t version_ = 0;
  Device device_;
  MemoryPurpose purpose_;
};

}  // namespace hs
