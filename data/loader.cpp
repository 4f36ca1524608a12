#include "data/loader.h"

#include <algorithm>

#include "engine/check.h"
#include "engine/random.h"

namespace hs {

Loader::Loader(const Dataset& dataset, const LoaderOptions& options) : dataset_(dataset), options_(options) {
  if (options.batch < 1) fail(ExitCode::usage, "batch size {}: expected 1 or more", options.batch);
  if (dataset.count < 1) fail(ExitCode::bad_input, "{}: the set has 0 samples, expected 1 or more", dataset.name);
  const auto pixels = static_cast<size_t>(dataset.count * dataset.rows * dataset.columns * dataset.channels);
  check(dataset.images.size() == pixels && dataset.labels.size() == static_cast<size_t>(dataset.count),
        "Loader: {} bytes of images and {} labels in a set of {} x {} x {} x {}", dataset.images.size(),
        dataset.labels.size(), dataset.count, dataset.rows, dataset.columns, dataset.channels);
}

int64_t Loader::batches_per_epoch() const {
  return dataset_.count / options_.batch + (dataset_.count % options_.batch != 0);
}

void Loader::start_epoch(int64_t epoch) {
  check(epoch >= 0 && epoch < int64_t{1} << 32, "Loader: epoch {} is not in 0 .. 2^32-1", epoch);
  epoch_ = epoch;
  position_ = 0;
}

int64_t Loader::sample_at(int64_t position) const {
  if (!options_.shuffle) return position;
  const RandomStream stream{
      .seed = options_.seed, .purpose = RandomPurpose::shuffle, .layer = 0, .step = static_cast<uint32_t>(epoch_)};
  return static_cast<int64_t>(
      permute_index(static_cast<uint64_t>(position), static_cast<uint64_t>(dataset_.count), stream));
}

Batch Loader::next() {
  const MemoryPurposeScope purpose(MemoryPurpose::loader);
  const int64_t count = std::min(options_.batch, dataset_.count - position_);
  Tensor images = Tensor::empty({count, dataset_.rows, dataset_.columns, dataset_.channels}, DType::u8);
  Tensor labels = Tensor::empty({count}, DType::i32);
  const int64_t image_bytes = dataset_.rows * dataset_.columns * dataset_.channels;
  uint8_t* image = images.mutable_data<uint8_t>();
  int32_t* label = labels.mutable_data<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = sample_at(position_ + i);
    std::copy_n(dataset_.images.data() + sample * image_bytes, image_bytes, image + i * image_bytes);
    label[i] = dataset_.labels[static_cast<size_t>(sample)];
  }
  position_ += count;
  if (position_ == dataset_.count) start_epoch(epoch_ + 1);
  return {images.to(options_.device), labels.to(options_.device)};
}

}  // namespace hs
