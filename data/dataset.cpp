#include "data/dataset.h"

#include <algorithm>

#include "data/idx.h"
#include "data/input_file.h"
#include "data/places.h"
#include "data/synthetic.h"
#include "engine/check.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

constexpr int digit_classes = 10;
constexpr PixelScale mnist_scale{0.1307f, 0.3081f};  // of the 60,000 training images
constexpr int64_t synthetic_train_count = 60000;     // MNIST's sizes
constexpr int64_t synthetic_test_count = 10000;

void check_limit(const char* part, int64_t limit, int64_t total) {
  if (limit < 0) fail(ExitCode::usage, "{} {}: expected 0 (all samples) or more", part, limit);
  if (limit > total) fail(ExitCode::usage, "{} {}: the set has {} samples", part, limit, total);
}

Dataset load_part(const fs::path& images_file, const fs::path& labels_file, const char* part, int64_t limit) {
  check_limit(part, limit, limit);  // the sign, before anything is read
  IdxImages images = read_idx_images(images_file, limit);
  const IdxLabels labels = read_idx_labels(labels_file, digit_classes, limit);
  if (images.total != labels.total) {
    fail(ExitCode::bad_input, "{} holds {} images but {} holds {} labels; expected as many, download both again",
         printable(images_file), images.total, printable(labels_file), labels.total);
  }
  check_limit(part, limit, images.total);
  Dataset set;
  set.name = "mnist";
  set.count = images.count;
  set.rows = images.rows;
  set.columns = images.columns;
  set.classes = digit_classes;
  set.scale = mnist_scale;
  set.images = std::move(images.pixels);
  set.labels.assign(labels.values.begin(), labels.values.end());
  return set;
}

DatasetPair load_from(const IdxPlace& place, int64_t train_limit, int64_t test_limit) {
  const std::string missing = place.missing();
  if (!missing.empty()) {
    fail(ExitCode::io,
         "{}: {} not found; looked for train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
         "t10k-labels-idx1-ubyte, also spelled with .idx and with .gz; `data/get mnist DIR` downloads them",
         printable(place.folder), missing);
  }
  DatasetPair pair;
  pair.train = load_part(place.files[0], place.files[1], "train", train_limit);
  pair.test = load_part(place.files[2], place.files[3], "test", test_limit);
  if (pair.train.rows != pair.test.rows || pair.train.columns != pair.test.columns) {
    fail(ExitCode::bad_input, "{}: training images are {} x {} but test images {} x {}; they are not of one set",
         printable(place.folder), pair.train.rows, pair.train.columns, pair.test.rows, pair.test.columns);
  }
  pair.source = fmt::format("mnist from {}: {} training and {} test images", printable(place.folder), pair.train.count,
                            pair.test.count);
  return pair;
}

SampleInfo with_count(SampleInfo info, int64_t count) {
  info.count = count;
  return info;
}

class FirstSamples : public SampleSource {
 public:
  FirstSamples(std::shared_ptr<const SampleSource> source, int64_t count)
      : SampleSource(with_count(source->info(), count)), source_(std::move(source)) {}
  bool is_in_memory() const override { return source_->is_in_memory(); }

 private:
  void read_sample(int64_t index, uint8_t* image) const override { source_->read_through(index, image); }
  int32_t sample_label(int64_t index) const override { return source_->label(index); }

  const std::shared_ptr<const SampleSource> source_;
};

SampleInfo info_of(const Dataset& set, std::string description) {
  SampleInfo info;
  info.name = set.name;
  info.description = std::move(description);
  info.count = set.count;
  info.rows = set.rows;
  info.columns = set.columns;
  info.channels = set.channels;
  info.classes = set.classes;
  info.scale = set.scale;
  return info;
}

}  // namespace

DatasetPair load_mnist(const std::optional<fs::path>& directory, int64_t train_limit, int64_t test_limit) {
  if (directory) return load_from(look_for_idx(*directory), train_limit, test_limit);

  std::string looked;
  for (const fs::path& folder : usual_places("mnist")) {
    const IdxPlace place = look_for_idx(folder);
    // Half a set is an accident that must not turn into other data.
    if (!place.nothing()) return load_from(place, train_limit, test_limit);
    looked += (looked.empty() ? "" : " and ") + printable(folder);
  }
  check_limit("train", train_limit, synthetic_train_count);
  check_limit("test", test_limit, synthetic_test_count);
  DatasetPair pair;
  pair.train = synthetic_digits(synthetic_train_seed, train_limit == 0 ? synthetic_train_count : train_limit);
  pair.test = synthetic_digits(synthetic_test_seed, test_limit == 0 ? synthetic_test_count : test_limit);
  pair.source = fmt::format("synthetic digits, because MNIST was not found in {}; `data/get mnist` downloads it",
                            looked.empty() ? "any place (HALFSTEP_DATA and HOME are not set)" : looked);
  return pair;
}

MemorySource::MemorySource(Dataset set, std::string description)
    : MemorySource(std::make_shared<const Dataset>(std::move(set)), std::move(description)) {}

MemorySource::MemorySource(std::shared_ptr<const Dataset> set, std::string description)
    : SampleSource(info_of(*set, std::move(description))), set_(std::move(set)) {
  check(static_cast<int64_t>(set_->labels.size()) == info().count &&
            static_cast<int64_t>(set_->images.size()) == info().count * info().image_bytes(),
        "MemorySource: {} bytes of images and {} labels in a set of {} images of {} bytes", set_->images.size(),
        set_->labels.size(), info().count, info().image_bytes());
}

void MemorySource::read_sample(int64_t index, uint8_t* image) const {
  std::copy_n(set_->images.data() + index * info().image_bytes(), info().image_bytes(), image);
}

std::unique_ptr<SampleSource> first_samples(std::unique_ptr<SampleSource> source, int64_t limit, const char* part) {
  check_limit(part, limit, source->info().count);
  if (limit == 0 || limit == source->info().count) return source;
  return std::make_unique<FirstSamples>(std::move(source), limit);
}

std::unique_ptr<SampleSource> view_of_first(const SampleSource& source, int64_t count) {
  const std::shared_ptr<const SampleSource> not_owned(std::shared_ptr<const void>(), &source);
  return std::make_unique<FirstSamples>(not_owned, std::min(count, source.info().count));
}

Dataset load_all(const SampleSource& source, int64_t limit, const char* part) {
  const SampleInfo& info = source.info();
  check_limit(part, limit, info.count);
  Dataset set;
  set.name = info.name;
  set.count = limit == 0 ? info.count : limit;
  set.rows = info.rows;
  set.columns = info.columns;
  set.channels = info.channels;
  set.classes = info.classes;
  set.scale = info.scale;
  set.images.resize(static_cast<size_t>(set.count * info.image_bytes()));
  set.labels.resize(static_cast<size_t>(set.count));
  for (int64_t i = 0; i < set.count; ++i) {
    source.read(i, set.images.data() + i * info.image_bytes());
    set.labels[static_cast<size_t>(i)] = source.label(i);
  }
  return set;
}

}  // namespace hs
