#include "engine/storage.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/observe.h"

namespace hs {
namespace {

constexpr const char* names[memory_purposes] = {"parameters", "gradients", "optimizer", "activations",
                                                "workspace",  "loader",    "other"};
constexpr int none = -1;
thread_local int scoped = none;

}  // namespace

const char* name(MemoryPurpose purpose) { return names[static_cast<size_t>(purpose)]; }

MemoryPurposeScope::MemoryPurposeScope(MemoryPurpose purpose) : before_(scoped) { scoped = static_cast<int>(purpose); }
MemoryPurposeScope::~MemoryPurposeScope() { scoped = before_; }

MemoryPurpose MemoryPurposeScope::current() {
  if (scoped != none) return static_cast<MemoryPurpose>(scoped);
  return *Op::current() ? MemoryPurpose::activations : MemoryPurpose::other;
}

class MemoryPool : NonCopyable {
 public:
  explicit MemoryPool(Device device) : device(device) {}
  ~MemoryPool();

  const Device device;
  std::map<size_t, std::vector<void*>> blocks;  // free blocks by size; guarded by the allocator's mutex
};

namespace {

// Buckets keep the three leading bits of a size, so above 256 bytes less than 1/5 of a block is unused.
size_t bucket_size(size_t bytes) {
  constexpr size_t smallest = 256;
  if (bytes <= smallest) return smallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool caching_by_default = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool caching_by_default = false;
#else
constexpr bool caching_by_default = true;
#endif
#else
constexpr bool caching_by_default = true;
#endif

std::atomic<bool> caching = caching_by_default;
std::atomic<bool> poison = false;

class Allocator {
 public:
  explicit Allocator(Device device) : device_(device), shared_(std::make_shared<MemoryPool>(device)) {}

  void* allocate(MemoryPool& pool, size_t bytes, MemoryPurpose purpose) {
    const std::lock_guard lock(mutex_);
    if (limit_ != 0 && stats_.live + bytes > limit_) fail_out_of_memory(bytes);
    const size_t block = caching ? bucket_size(bytes) : bytes;
    void* data = take(pool, block);
    if (!data) data = allocate_new(block);
    if (!data) fail_out_of_memory(bytes);
    const auto p = static_cast<size_t>(purpose);
    stats_.live += bytes;
    stats_.live_by_purpose[p] += bytes;
    stats_.peak_by_purpose[p] = std::max(stats_.peak_by_purpose[p], stats_.live_by_purpose[p]);
    if (stats_.live > stats_.peak) {
      stats_.peak = stats_.live;
      stats_.at_peak = stats_.live_by_purpose;
    }
    ++stats_.allocations;
    tell(true, purpose, bytes, data);
    return data;
  }

  void release(MemoryPool& pool, void* data, size_t bytes, MemoryPurpose purpose) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.live -= bytes;
    stats_.live_by_purpose[static_cast<size_t>(purpose)] -= bytes;
    tell(false, purpose, bytes, data);
    const size_t block = caching ? bucket_size(bytes) : bytes;
    const bool is_shared = &pool == shared_.get();
    try {  // a separate pool keeps its blocks even without caching: its graph still writes to them
      if (caching || !is_shared) return pool.blocks[block].push_back(data);
    } catch (const std::bad_alloc&) {
      if (!is_shared) return;
    }
    runtime(device_).release(data);
    stats_.reserved -= block;
  }

  // The pool's owner is gone. Its blocks go to everybody: a run that captures the same step as the one before finds
  // them, where cudaMalloc would take milliseconds.
  void dissolve(MemoryPool& pool) {
    const std::lock_guard lock(mutex_);
    if (!caching) return release_cached_locked(pool);
    for (auto& [size, blocks] : pool.blocks) {
      std::vector<void*>& cached = shared_->blocks[size];
      cached.insert(cached.end(), blocks.begin(), blocks.end());
    }
    pool.blocks.clear();
  }

  void release_cached(MemoryPool& pool) {
    const std::lock_guard lock(mutex_);
    release_cached_locked(pool);
  }

  MemoryStats read() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
    stats_.peak_by_purpose = stats_.at_peak = stats_.live_by_purpose;
  }

  void set_limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

  const std::shared_ptr<MemoryPool>& shared() const { return shared_; }

 private:
  void tell(bool made, MemoryPurpose purpose, size_t bytes, const void* data) const {
    Observers::tell(Event::storage, [&](Observer& observer) {
      observer.storage(device_, {Op::current(), purpose, made, bytes, data}, stats_);
    });
  }

  void* take(MemoryPool& pool, size_t block) {
    for (MemoryPool* from : {&pool, shared_.get()}) {
      auto found = from->blocks.find(block);
      if (found == from->blocks.end() || found->second.empty()) continue;
      void* data = found->second.back();
      found->second.pop_back();
      return data;
    }
    return nullptr;
  }

  void* allocate_new(size_t block) {
    void* data = runtime(device_).allocate(block);
    if (!data) {  // cached blocks of other sizes may free enough memory
      release_cached_locked(*shared_);
      data = runtime(device_).allocate(block);
    }
    if (data) stats_.reserved += block;
    return data;
  }

  [[noreturn]] void fail_out_of_memory(size_t bytes) const {
    const std::string op = Op::current();
    throw Error(device_ == Device::cpu ? ExitCode::out_of_memory : ExitCode::device,
                fmt::format("{}out of {} memory: {} bytes requested, {} live, {} peak{}; use a smaller batch",
                            op.empty() ? "" : op + ": ", name(device_), bytes, stats_.live, stats_.peak,
                            limit_ ? fmt::format(", limit {}", limit_) : std::string()),
                ErrorKind::out_of_memory);
  }

  void release_cached_locked(MemoryPool& pool) {
    for (auto& [size, blocks] : pool.blocks) {
      for (void* data : blocks) {
        runtime(device_).release(data);
        stats_.reserved -= size;
      }
    }
    pool.blocks.clear();
  }

  const Device device_;
  std::mutex mutex_;
  MemoryStats stats_;
  size_t limit_ = 0;
  const std::shared_ptr<MemoryPool> shared_;
};

// Never destroyed: tensors in static objects may outlive any destruction order.
Allocator& allocator(Device device) {
  static Allocator* const all[] = {new Allocator(Device::cpu), new Allocator(Device::cuda)};  // leaked deliberately
  return *all[static_cast<int>(device)];
}

thread_local std::shared_ptr<MemoryPool> current_pool;

}  // namespace

MemoryPool::~MemoryPool() { allocator(device).dissolve(*this); }

std::shared_ptr<MemoryPool> make_memory_pool(Device device) { return std::make_shared<MemoryPool>(device); }

PoolScope::PoolScope(std::shared_ptr<MemoryPool> pool) : before_(std::exchange(current_pool, std::move(pool))) {}
PoolScope::~PoolScope() { current_pool = std::move(before_); }

MemoryStats memory_stats(Device device) { return allocator(device).read(); }
void reset_peak(Device device) { allocator(device).reset_peak(); }
void release_cached_memory(Device device) { allocator(device).release_cached(*allocator(device).shared()); }
void set_memory_limit(Device device, size_t bytes) { allocator(device).set_limit(bytes); }
void set_poison(bool on) { poison = on; }
void set_caching(bool on) { caching = on; }

Storage::Storage(Device device, size_t bytes)
    : bytes_(bytes), device_(device), purpose_(MemoryPurposeScope::current()) {
  if (bytes == 0) return;
  pool_ = current_pool && current_pool->device == device ? current_pool : allocator(device).shared();
  data_ = allocator(device).allocate(*pool_, bytes, purpose_);
  if (poison) runtime(device).fill(data_, 0xff, bytes);
}

Storage::Storage(void* data, size_t bytes, std::shared_ptr<const void> owner)
    : data_(data), bytes_(bytes), owner_(std::move(owner)), device_(Device::cpu), purpose_(MemoryPurpose::other) {}
Storage::~Storage() {
  if (data_ && !owner_) allocator(device_).release(*pool_, data_, bytes_, purpose_);
}

}  // namespace hs
