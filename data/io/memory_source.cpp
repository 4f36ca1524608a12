#include "data/io/memory_source.h"

#include <algorithm>

#include "engine/check.h"
#include "engine/files/crc32c.h"

namespace hs {
namespace {

SampleInfo with_count(SampleInfo info, int64_t count) {
  info.count = count;
  return info;
}

}  // namespace

uint32_t SampleSource::sample_checksum(int64_t index) const {
  std::vector<uint8_t> image(static_cast<size_t>(info_.image_bytes()));
  read(index, image.data());
  const int32_t label = sample_label(index);
  return crc32c(&label, sizeof label, crc32c(image.data(), image.size()));
}

MemorySource::MemorySource(SampleInfo info, std::vector<uint8_t> images, std::vector<int32_t> labels, int64_t stride)
    : SampleSource(with_count(std::move(info), std::ssize(labels))),
      images_(std::move(images)),
      labels_(std::move(labels)),
      stride_(stride > 0 ? stride : this->info().image_bytes()) {
  const int64_t each = this->info().image_bytes(), last = (this->info().count - 1) * stride_;
  check(std::ssize(images_) == (labels_.empty() ? 0 : last + each),
        "MemorySource: {} bytes of images for {} labels, expected {} bytes for each", images_.size(), labels_.size(),
        each);
}

void MemorySource::read_sample(int64_t index, uint8_t* image) const {
  std::copy_n(images_.data() + index * stride_, info().image_bytes(), image);
}

MemorySource load_samples(const SampleSource& source, int64_t count) {
  const SampleInfo& info = source.info();
  count = std::min(count, info.count);
  std::vector<uint8_t> images(static_cast<size_t>(count * info.image_bytes()));
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    source.read(i, images.data() + i * info.image_bytes());
    labels[static_cast<size_t>(i)] = source.label(i);
  }
  return {info, std::move(images), std::move(labels)};
}

// Seed 0: a split that changed with the run's seed would put samples that one run has trained on into another's
// validation.
PartOfSamples::PartOfSamples(std::shared_ptr<const SampleSource> source, int64_t first, int64_t count,
                             SampleOrder order)
    : SampleSource(with_count(source->info(), std::min(count, source->info().count - first))),
      source_(std::move(source)),
      first_(first),
      is_mixed_(order == SampleOrder::mixed),
      order_(static_cast<uint64_t>(source_->info().count), {.seed = 0, .purpose = RandomPurpose::shuffle}) {}

PartOfSamples::PartOfSamples(std::shared_ptr<const SampleSource> source, std::vector<int64_t> indices)
    : SampleSource(with_count(source->info(), std::ssize(indices))),
      source_(std::move(source)),
      first_(0),
      is_mixed_(false),
      order_(1, {}),
      indices_(std::move(indices)) {}

PartOfSamples::PartOfSamples(const SampleSource& source, int64_t first, int64_t count, SampleOrder order)
    : PartOfSamples(std::shared_ptr<const SampleSource>(std::shared_ptr<void>(), &source), first, count, order) {}

TrainAndTest split_samples(const std::shared_ptr<const SampleSource>& all, double fraction) {
  const int64_t count = all->info().count;
  check(count >= 2, "split_samples: {} samples, expected 2 or more", count);
  std::vector<std::pair<uint32_t, int64_t>> drawn;  // for each sample a number that its checksum decides
  for (int64_t i = 0; i < count; ++i) {
    drawn.emplace_back(random_bits({.seed = all->checksum(i), .purpose = RandomPurpose::shuffle}, 0), i);
  }
  std::ranges::sort(drawn);
  const auto is_held = [fraction](const auto& one) { return static_cast<double>(one.first) < fraction * 0x1p32; };
  const int64_t held = std::clamp<int64_t>(std::ranges::count_if(drawn, is_held), 1, count - 1);
  std::vector<int64_t> train, test;
  for (const auto& [number, index] : drawn) (std::ssize(test) < held ? test : train).push_back(index);
  return {std::make_unique<PartOfSamples>(all, std::move(train)),
          std::make_unique<PartOfSamples>(all, std::move(test))};
}

}  // namespace hs
