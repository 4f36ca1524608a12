#include "data/loader/sample_cache.h"

#include <algorithm>
#include <new>

#include "engine/check.h"

namespace hs {

SampleCache::SampleCache(const SampleSource& source) : SampleSource(source.info()), source_(source) {
  const auto count = static_cast<size_t>(info().count);
  const auto bytes = count * static_cast<size_t>(info().image_bytes());
  try {
    pixels_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    is_there_ = std::make_unique<std::atomic<bool>[]>(count);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::out_of_memory, "cache ram: no memory for {} samples of {} bytes; do without the cache", count,
         info().image_bytes());
  }
}

void SampleCache::read_sample(int64_t index, uint8_t* image) const {
  const int64_t bytes = info().image_bytes();
  uint8_t* kept = pixels_.get() + index * bytes;
  std::atomic<bool>& is_there = is_there_[static_cast<size_t>(index)];
  if (!is_there.load(std::memory_order_acquire)) {
    // Two epochs may read a sample at the same time: the second thread waits for the first.
    const std::scoped_lock lock(locks_[static_cast<size_t>(index) % lock_count]);
    if (!is_there.load(std::memory_order_relaxed)) {
      source_.read_through(index, kept);
      is_there.store(true, std::memory_order_release);
    }
  }
  std::copy_n(kept, bytes, image);
}

}  // namespace hs
