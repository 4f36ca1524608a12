#include "data/io/memory_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "engine/check.h"
#include "engine/files/crc32c.h"

namespace hs {
namespace {

SampleInfo with_count(SampleInfo info, int64_t count) {
  info.count = count;
  return info;
}

// The index of the first value that is not finite; -1 if there is none.
int64_t first_not_finite(const Tensor& values) {
  if (values.dtype() != DType::f32) return -1;
  const std::span all(values.data<float>(), static_cast<size_t>(values.size()));
  const auto found = std::ranges::find_if_not(all, [](float value) { return std::isfinite(value); });
  return found == all.end() ? -1 : found - all.begin();
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

MemorySource from_tensors(SampleInfo info, const Tensor& samples, const Tensor& labels, const std::string& samples_name,
                          const std::string& labels_name) {
  const Shape& all = samples.shape();
  if ((samples.dtype() != DType::u8 && samples.dtype() != DType::f32) || all.rank() < 2 || all.size() == 0) {
    fail(ExitCode::bad_input,
         "{}: {}, expected u8 or f32 of shape (N, F), (N, H, W) or (N, H, W, C); in NumPy: x.astype(\"float32\")",
         samples_name, samples);
  }
  const bool has_classes = labels.dtype() == DType::i32;
  if (labels.shape() != Shape{all[0]} || (!has_classes && labels.dtype() != DType::f32)) {
    fail(ExitCode::bad_input, "{}: {}, expected one for each of {} samples, integers of shape ({})", labels_name,
         labels, all[0], all[0]);
  }
  static_cast<ImageShape&>(info) = all.rank() == 2   ? ImageShape{1, all[1], 1}
                                   : all.rank() == 3 ? ImageShape{all[1], all[2], 1}
                                                     : ImageShape{all[1], all[2], all[3]};
  info.type = samples.dtype();
  info.label_type = labels.dtype();
  if ((all.rank() > 2 && !info.is_allowed()) || info.image_bytes() > max_image_bytes) {
    fail(ExitCode::bad_input, "{}: samples of {}, expected at most {} x {} x {} and {} bytes", samples_name,
         info.text(), max_image_side, max_image_side, max_image_channels, max_image_bytes);
  }
  for (const auto& [tensor, name] : {std::pair(&samples, samples_name), {&labels, labels_name}}) {
    if (const int64_t bad = first_not_finite(*tensor); bad >= 0) {
      fail(ExitCode::bad_input, "{}: a value of sample {} is {}, expected finite ones; leave out such samples", name,
           bad / (tensor->size() / all[0]), tensor->data<float>()[bad]);
    }
  }
  if (info.type != DType::u8) info.scale = {};
  const auto* const bits = static_cast<const int32_t*>(labels.raw_data());
  std::vector<int32_t> numbers(bits, bits + all[0]);
  if (has_classes) {
    const int most = info.classes > 0 ? info.classes : max_classes;
    const auto bad = std::ranges::find_if(numbers, [most](int32_t label) { return label < 0 || label >= most; });
    if (bad != numbers.end()) {
      fail(ExitCode::bad_input, "{}: label {} of sample {}, expected classes from 0 to {}", labels_name, *bad,
           bad - numbers.begin(), most - 1);
    }
  }
  if (!has_classes || info.classes == 0) info.classes = has_classes ? *std::ranges::max_element(numbers) + 1 : 0;
  const auto* const bytes = static_cast<const uint8_t*>(samples.raw_data());
  return {std::move(info), {bytes, bytes + samples.bytes()}, std::move(numbers)};
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
  check(fraction > 0 && fraction < 1, "split_samples: a fraction of {}, expected more than 0 and less than 1",
        fraction);
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
