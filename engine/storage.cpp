#include "engine/storage.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "engine/check.h"

namespace hs {
namespace {

// Buckets keep the three leading bits of a size, so at most 1/4 of a block is unused (1/8 on average).
size_t bucket_size(size_t bytes) {
  constexpr size_t smallest = 256;
  if (bytes <= smallest) return smallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

// Under AddressSanitizer every storage is its own allocation of the exact size, so that a kernel that runs over the end
// or reads a freed block is caught.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool caching = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool caching = false;
#else
constexpr bool caching = true;
#endif
#else
constexpr bool caching = true;
#endif

class Allocator {
 public:
  void* allocate(Device device, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t block = caching ? bucket_size(bytes) : bytes;
    void* data = nullptr;
    if (limit_ == 0 || stats_.live + bytes <= limit_) data = take(device, block);
    if (!data) {
      fail(device == Device::cpu ? ExitCode::out_of_memory : ExitCode::device,
           "out of {} memory: {} bytes requested, {} live, {} peak{}; use a smaller batch", name(device), bytes,
           stats_.live, stats_.peak, limit_ ? fmt::format(", limit {}", limit_) : std::string());
    }
    stats_.live += bytes;
    stats_.peak = std::max(stats_.peak, stats_.live);
    ++stats_.allocations;
    return data;
  }

  void release(Device device, void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live -= bytes;
    if (caching) {
      cached_[bucket_size(bytes)].push_back(data);
    } else {
      runtime(device).release(data);
      stats_.reserved -= bytes;
    }
  }

  void release_cached(Device device) {
    const std::lock_guard lock(mutex_);
    release_cached_locked(device);
  }

  MemoryStats read() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
  }

  void set_limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

 private:
  void* take(Device device, size_t block) {
    if (auto found = cached_.find(block); found != cached_.end() && !found->second.empty()) {
      void* data = found->second.back();
      found->second.pop_back();
      return data;
    }
    void* data = runtime(device).allocate(block);
    if (!data) {  // the cache may hold what is missing, in blocks of other sizes
      release_cached_locked(device);
      data = runtime(device).allocate(block);
    }
    if (data) stats_.reserved += block;
    return data;
  }

  void release_cached_locked(Device device) {
    for (auto& [size, blocks] : cached_) {
      for (void* data : blocks) {
        runtime(device).release(data);
        stats_.reserved -= size;
      }
    }
    cached_.clear();
  }

  std::mutex mutex_;
  MemoryStats stats_;
  size_t limit_ = 0;
  std::map<size_t, std::vector<void*>> cached_;
};

// Never destroyed: tensors in static objects may outlive any destruction order.
Allocator& allocator(Device device) {
  static auto* const all = new Allocator[device_count];
  return all[static_cast<int>(device)];
}

std::atomic<bool> poison = false;

}  // namespace

MemoryStats memory_stats(Device device) { return allocator(device).read(); }
void reset_peak(Device device) { allocator(device).reset_peak(); }
void release_cached_memory(Device device) { allocator(device).release_cached(device); }
void set_memory_limit(Device device, size_t bytes) { allocator(device).set_limit(bytes); }
void set_poison(bool on) { poison = on; }

Storage::Storage(Device device, size_t bytes) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  data_ = allocator(device).allocate(device, bytes);
  if (poison && device == Device::cpu) std::memset(data_, 0xff, bytes);
}

Storage::~Storage() {
  if (data_) allocator(device_).release(device_, data_, bytes_);
}

}  // namespace hs
