// SampleCache: a view of another source that reads each sample once and keeps it in memory, decoded, as u8. Filled on
// demand: the first epoch costs what it did without the cache, and each later one costs a copy. Thread safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "data/io/sample_source.h"

namespace hs {

class SampleCache : public SampleSource {
 public:
  // `source` must outlive the cache. Allocates the memory of all pixels at once; the operating system provides pages as
  // they are written. Throws Error (out_of_memory).
  explicit SampleCache(const SampleSource& source);
  bool is_in_memory() const override { return true; }

 private:
  void read_sample(int64_t index, uint8_t* image) const override;
  int32_t sample_label(int64_t index) const override { return source_.label(index); }

  static constexpr size_t lock_count = 64;

  const SampleSource& source_;
  std::unique_ptr<uint8_t[]> pixels_;              // (count, rows, columns, channels)
  std::unique_ptr<std::atomic<bool>[]> is_there_;  // (count)
  mutable std::mutex locks_[lock_count];           // one per remainder of the index; held while a sample is read
};

}  // namespace hs
