// For tests of the loader: the expected batches, computed without it, and sources that misbehave.
#pragma once

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "data/loader/loader.h"
#include "engine/random.h"
#include "tests/support/sample_sets.h"

namespace hs::test {

// The sample at a position of an epoch.
inline int64_t expected_sample(int64_t position, int64_t epoch, int64_t count, const LoaderOptions& options) {
  if (!options.shuffle) return position;
  const Permutation order(
      static_cast<uint64_t>(count),
      {.seed = options.seed, .purpose = RandomPurpose::shuffle, .layer = 0, .step = static_cast<uint32_t>(epoch)});
  return static_cast<int64_t>(order(static_cast<uint64_t>(position)));
}

// The contents of a batch, on the host: bytes, and the labels' bits.
struct HostBatch {
  std::vector<uint8_t> images;
  std::vector<int32_t> labels, samples;
  int64_t epoch = 0;
  bool operator==(const HostBatch&) const = default;
};

inline HostBatch on_host(const Batch& batch) {
  const Tensor images = batch.images.to(Device::cpu), labels = batch.labels.to(Device::cpu);
  const auto* const bytes = static_cast<const uint8_t*>(images.raw_data());
  const auto* const numbers = static_cast<const int32_t*>(labels.raw_data());
  return {{bytes, bytes + images.bytes()},
          {numbers, numbers + labels.size()},
          batch.samples.to_vector<int32_t>(),
          static_cast<int64_t>(batch.epoch.item())};
}

// The batch that begins at a position. `info`: of a data set defined by image_of() and label_of().
inline HostBatch expected_batch(const SampleInfo& info, int64_t epoch, int64_t position, const LoaderOptions& options) {
  HostBatch batch;
  batch.epoch = epoch;
  for (int64_t p = position; p < std::min(position + options.batch, info.count); ++p) {
    const int64_t sample = expected_sample(p, epoch, info.count, options);
    const std::vector<uint8_t> image = image_of(info, sample);
    batch.images.insert(batch.images.end(), image.begin(), image.end());
    batch.labels.push_back(label_of(info, sample));
    batch.samples.push_back(static_cast<int32_t>(sample));
  }
  return batch;
}

// Compares the loader's next `batches` batches with the expected ones. Returns how many differ.
inline int64_t wrong_batches(Loader& loader, const SampleInfo& info, const LoaderOptions& options, int64_t batches) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const HostBatch expected = expected_batch(info, loader.epoch(), loader.position(), options);
    wrong += on_host(loader.next()) != expected;
  }
  return wrong;
}

// The numbered data set, with a hook that a test runs before each read.
class TestSource : public SampleSource {
 public:
  explicit TestSource(const SampleInfo& info, std::function<void(int64_t sample)> before = {})
      : SampleSource(info), before_(std::move(before)) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    if (before_) before_(index);
    const std::vector<uint8_t> pixels = image_of(info(), index);
    std::copy(pixels.begin(), pixels.end(), image);
  }
  int32_t sample_label(int64_t index) const override { return label_of(info(), index); }

  std::function<void(int64_t)> before_;
};

// Sleeps for no time, briefly or longer, so that threads interleave in every order.
class RandomDelay {
 public:
  explicit RandomDelay(uint64_t seed) : seed_(seed) {}
  void operator()() {
    const uint64_t number = (seed_ + ++calls_) * 0x9e3779b97f4a7c15u >> 56;
    if (number < 96) return;
    if (number < 192) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(number));
  }

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace hs::test
