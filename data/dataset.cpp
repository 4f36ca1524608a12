#include "data/dataset.h"

#include <array>
#include <cstdlib>

#include "data/idx.h"
#include "data/synthetic.h"
#include "engine/check.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

constexpr int digit_classes = 10;
constexpr PixelScale mnist_scale{0.1307f, 0.3081f};  // of the 60,000 training images
constexpr int64_t synthetic_train_count = 60000;     // MNIST's sizes
constexpr int64_t synthetic_test_count = 10000;

struct FileName {
  const char* stem;
  const char* dimensions;
  std::string spelled(const char* separator) const { return fmt::format("{}{}{}-ubyte", stem, separator, dimensions); }
};
// In the order of struct Place.
constexpr std::array<FileName, 4> mnist_files = {
    {{"train-images", "idx3"}, {"train-labels", "idx1"}, {"t10k-images", "idx3"}, {"t10k-labels", "idx1"}}};

struct Place {
  fs::path folder;
  std::array<fs::path, 4> files;  // empty: not there
  std::string missing;            // names, separated by commas

  bool nothing() const { return files == std::array<fs::path, 4>{}; }
};

bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) {
    fail(ExitCode::io, "{}: cannot be looked at: {}", printable(path), error.message());
  }
  return status.type() != fs::file_type::not_found;
}

Place look_in(const fs::path& folder) {
  Place place{folder, {}, {}};
  for (size_t i = 0; i < mnist_files.size(); ++i) {
    const FileName& name = mnist_files[i];
    for (const std::string& spelling :
         {name.spelled("-"), name.spelled("."), name.spelled("-") + ".gz", name.spelled(".") + ".gz"}) {
      if (place.files[i].empty() && is_there(folder / spelling)) place.files[i] = folder / spelling;
    }
    if (place.files[i].empty()) place.missing += (place.missing.empty() ? "" : ", ") + name.spelled("-");
  }
  return place;
}

void check_limit(const char* flag, int64_t limit, int64_t total) {
  if (limit < 0) fail(ExitCode::usage, "{} {}: expected 0 (all samples) or more", flag, limit);
  if (limit > total) fail(ExitCode::usage, "{} {}: the set has {} samples", flag, limit, total);
}

Dataset load_part(const fs::path& images_file, const fs::path& labels_file, const char* flag, int64_t limit) {
  check_limit(flag, limit, limit);  // the sign, before anything is read
  IdxImages images = read_idx_images(images_file, limit);
  const IdxLabels labels = read_idx_labels(labels_file, digit_classes, limit);
  if (images.total != labels.total) {
    fail(ExitCode::bad_input, "{} holds {} images but {} holds {} labels; expected as many, download both again",
         printable(images_file), images.total, printable(labels_file), labels.total);
  }
  check_limit(flag, limit, images.total);
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

DatasetPair load_from(const Place& place, int64_t train_limit, int64_t test_limit) {
  if (!place.missing.empty()) {
    fail(ExitCode::io,
         "{}: {} not found; looked for train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
         "t10k-labels-idx1-ubyte, also spelled with .idx and with .gz; `data/get mnist DIR` downloads them",
         printable(place.folder), place.missing);
  }
  DatasetPair pair;
  pair.train = load_part(place.files[0], place.files[1], "--train", train_limit);
  pair.test = load_part(place.files[2], place.files[3], "--test", test_limit);
  if (pair.train.rows != pair.test.rows || pair.train.columns != pair.test.columns) {
    fail(ExitCode::bad_input, "{}: training images are {} x {} but test images {} x {}; they are not of one set",
         printable(place.folder), pair.train.rows, pair.train.columns, pair.test.rows, pair.test.columns);
  }
  pair.source = fmt::format("mnist from {}: {} training and {} test images", printable(place.folder), pair.train.count,
                            pair.test.count);
  return pair;
}

std::vector<fs::path> usual_places() {
  std::vector<fs::path> places;
  const auto add = [&](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') places.push_back(fs::path(value) / below);
  };
  add("HALFSTEP_DATA", "mnist");
  add("HOME", ".cache/halfstep/mnist");
  return places;
}

}  // namespace

DatasetPair load_mnist(const std::optional<fs::path>& directory, int64_t train_limit, int64_t test_limit) {
  if (directory) return load_from(look_in(*directory), train_limit, test_limit);

  std::string looked;
  for (const fs::path& folder : usual_places()) {
    const Place place = look_in(folder);
    // Half a set is an accident that must not turn into other data.
    if (!place.nothing()) return load_from(place, train_limit, test_limit);
    looked += (looked.empty() ? "" : " and ") + printable(folder);
  }
  check_limit("--train", train_limit, synthetic_train_count);
  check_limit("--test", test_limit, synthetic_test_count);
  DatasetPair pair;
  pair.train = synthetic_digits(synthetic_train_seed, train_limit == 0 ? synthetic_train_count : train_limit);
  pair.test = synthetic_digits(synthetic_test_seed, test_limit == 0 ? synthetic_test_count : test_limit);
  pair.source = fmt::format("synthetic digits, because MNIST was not found in {}; `data/get mnist` downloads it",
                            looked.empty() ? "any place (HALFSTEP_DATA and HOME are not set)" : looked);
  return pair;
}

}  // namespace hs
