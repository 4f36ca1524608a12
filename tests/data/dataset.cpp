// Data sets: where MNIST is looked for, the generated digits, and the loader's order.
#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/loader/loader.h"
#include "data/open_dataset.h"
#include "data/synthetic.h"
#include "engine/error.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
namespace fs = std::filesystem;
using hs::test::TemporaryFolder;

// Sets an environment variable, or unsets it, until the end of the scope.
class Environment {
 public:
  Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Environment() { set(old_); }

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

struct Failure {
  ExitCode code = ExitCode::ok;
  std::string message;
};

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return {error.code(), error.what()};
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string big_endian(std::initializer_list<uint32_t> words) {
  std::string bytes;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift);
  }
  return bytes;
}
std::string images_idx(uint32_t count, uint32_t rows = 3, uint32_t columns = 2) {
  return big_endian({0x803, count, rows, columns}) + std::string(count * rows * columns, 'p');
}
std::string labels_idx(const std::string& labels) {
  return big_endian({0x801, static_cast<uint32_t>(labels.size())}) + labels;
}

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  if (path.extension() == ".gz") {
    const gzFile file = gzopen(path.c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
  } else {
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    REQUIRE(file.good());
  }
}

// A set of 6 training and 4 test samples of 3 x 2 pixels.
void write_set(const fs::path& folder, const std::string& separator = "-", const std::string& suffix = "") {
  const auto name = [&](const char* stem, const char* kind) { return folder / (stem + separator + kind + suffix); };
  write(name("train-images", "idx3-ubyte"), images_idx(6));
  write(name("train-labels", "idx1-ubyte"), labels_idx({5, 0, 4, 1, 9, 2}));
  write(name("t10k-images", "idx3-ubyte"), images_idx(4));
  write(name("t10k-labels", "idx1-ubyte"), labels_idx({7, 2, 1, 0}));
}

// A part of a set that is in memory.
struct Loaded {
  SampleInfo info;
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
};
Loaded load(const FoundDataset& found, Part part, int64_t limit = 0) {
  const auto source = open_dataset(found, part, limit);
  const auto& memory = dynamic_cast<const MemorySource&>(*source);
  return {memory.info(), memory.images(), memory.labels()};
}

TEST_CASE("digits: MNIST in both spellings, plain and gzip") {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const TemporaryFolder folder;
      write_set(folder.path, separator, suffix);
      const FoundDataset found = find_digits(folder.path);
      CHECK(found.format == DataFormat::idx);
      const Loaded train = load(found, Part::train), test = load(found, Part::test, 3);
      CHECK(train.info.name == "mnist");
      CHECK(train.info.count == 6);
      CHECK(train.info.rows == 3);
      CHECK(train.info.columns == 2);
      CHECK(train.info.channels == 1);
      CHECK(train.info.classes == 10);
      CHECK(train.info.scale.mean == 0.1307f);
      CHECK(train.info.scale.deviation == 0.3081f);
      CHECK(train.images.size() == 36);
      CHECK(train.labels == std::vector<int32_t>{5, 0, 4, 1, 9, 2});
      CHECK(test.info.count == 3);
      CHECK(test.images.size() == 18);
      CHECK(test.labels == std::vector<int32_t>{7, 2, 1});
      CHECK(load(found, Part::test, 5).info.count == 4);
      CHECK(contains(train.info.description, folder.path.string()));
    }
  }
}

TEST_CASE("digits: the given folder must have MNIST, without a fallback") {
  const TemporaryFolder good, empty;
  write_set(good.path / "mnist");
  const Environment data("HALFSTEP_DATA", good.path.string());
  for (const fs::path& folder : {empty.path, empty.path / "nowhere"}) {
    const Failure failure = failure_of([&] { find_digits(folder); });
    CHECK(failure.code == ExitCode::io);
    for (const char* name : {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"}) {
      CHECK_MESSAGE(contains(failure.message, name), failure.message);
    }
    CHECK(failure.message.starts_with(folder.string() + ": "));
  }
}

TEST_CASE("digits: MNIST in the usual places, in order, then generated digits") {
  const TemporaryFolder data_folder, home_folder;
  const Environment data("HALFSTEP_DATA", data_folder.path.string());
  const Environment home("HOME", home_folder.path.string());
  const fs::path in_data = data_folder.path / "mnist";
  const fs::path in_home = home_folder.path / ".cache/halfstep/mnist";

  const FoundDataset made = find_digits();
  CHECK(made.format == DataFormat::generated);
  CHECK(load(made, Part::train, 20).info.name == "synthetic digits");
  CHECK(load(made, Part::train, 20).info.count == 20);
  CHECK(load(made, Part::test, 60000).info.count == 10000);

  // What other formats leave there is not looked at.
  fs::create_directories(in_data / "train" / "0");
  CHECK(find_digits().format == DataFormat::generated);
  write_set(in_home);
  CHECK(find_digits().train == in_home);
  write_set(in_data);
  CHECK(find_digits().train == in_data);

  // Half a set is an error, not a reason to use other data.
  fs::remove(in_data / "t10k-labels-idx1-ubyte");
  const Failure half = failure_of([] { find_digits(); });
  CHECK(half.code == ExitCode::io);
  CHECK_MESSAGE(contains(half.message, "mnist: t10k-labels-idx1-ubyte not found"), half.message);
}

TEST_CASE("digits: no HOME and no HALFSTEP_DATA") {
  const Environment home("HOME", {});
  for (const std::optional<std::string>& value : {std::optional<std::string>{}, std::optional<std::string>{""}}) {
    const Environment data("HALFSTEP_DATA", value);
    CHECK(find_digits().format == DataFormat::generated);
  }
}

TEST_CASE("digits: files that do not belong together, also beyond the limit") {
  struct Row {
    const char* file;  // replaced by `bytes`; empty: none
    std::string bytes;
    int64_t train_limit, test_limit;
    ExitCode code;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"", "", 6, 4, ExitCode::ok, ""},
      {"train-images-idx3-ubyte", images_idx(7), 0, 0, ExitCode::bad_input, "holds 7 images but"},
      {"train-images-idx3-ubyte", images_idx(7), 2, 2, ExitCode::bad_input, "holds 6 labels"},
      {"t10k-labels-idx1-ubyte", labels_idx("\1"), 0, 0, ExitCode::bad_input, "holds 1 labels"},
      {"t10k-labels-idx1-ubyte", labels_idx({1, 2, 3, 10}), 0, 1, ExitCode::bad_input, "label 10 of sample 3"},
      {"t10k-images-idx3-ubyte", images_idx(4, 2, 3), 0, 0, ExitCode::bad_input,
       "training images are 3 x 2 x 1 of 10 classes but test images 2 x 3"},
      {"train-images-idx3-ubyte", images_idx(0), 0, 0, ExitCode::bad_input, "a dimension is 0"},
      {"train-images-idx3-ubyte", labels_idx({5, 0, 4, 1, 9, 2, 0, 0}), 0, 0, ExitCode::bad_input, "swapped?"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.part);
    const TemporaryFolder folder;
    write_set(folder.path);
    if (*row.file != '\0') write(folder.path / row.file, row.bytes);
    const Failure failure = failure_of([&] {
      const FoundDataset found = find_digits(folder.path);
      const Loaded train = load(found, Part::train, row.train_limit), test = load(found, Part::test, row.test_limit);
      check_one_set("set", train.info, test.info);
    });
    CHECK(failure.code == row.code);
    CHECK_MESSAGE(contains(failure.message, row.part), failure.message);
  }
}

std::optional<fs::path> real_mnist() {
  const char* data = std::getenv("HALFSTEP_DATA");
  if (data != nullptr && fs::exists(fs::path(data) / "mnist")) return fs::path(data) / "mnist";
  MESSAGE("skipped: $HALFSTEP_DATA/mnist does not exist, so there is no real MNIST to read");
  return {};
}

TEST_CASE("the real mnist") {
  if (!real_mnist()) return;
  const Loaded train = load(find_digits(), Part::train), test = load(find_digits(), Part::test);
  CHECK(train.info.count == 60000);
  CHECK(test.info.count == 10000);
  CHECK(train.images.size() == 47040000);
  CHECK(test.images.size() == 7840000);
  const auto first = [](const Loaded& set) { return std::vector(set.labels.begin(), set.labels.begin() + 5); };
  CHECK(first(train) == std::vector<int32_t>{5, 0, 4, 1, 9});
  CHECK(first(test) == std::vector<int32_t>{7, 2, 1, 0, 4});
  CHECK(load(find_digits(), Part::train, 20000).images.size() == 20000 * 784);
}

uint64_t fnv1a(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

TEST_CASE("generated digits are the same on every machine and depend on seed and index alone") {
  const MemorySource set = synthetic_digits(synthetic_train_seed, 1000);
  CHECK(fnv1a(set.images()) == 0x3a28c341d8c8a56e);  // GCC 12 and Clang 14, -O0 to -O3 -march=native
  CHECK(std::vector(set.labels().begin(), set.labels().begin() + 8) == std::vector<int32_t>{5, 9, 6, 7, 9, 8, 6, 7});

  std::vector<uint8_t> one(784);
  CHECK(synthetic_digit(synthetic_train_seed, 737, one) == set.labels()[737]);
  CHECK(std::equal(one.begin(), one.end(), set.images().begin() + 737 * 784));
  CHECK(synthetic_digits(synthetic_test_seed, 1000).images() != set.images());
}

TEST_CASE("generated digits can be told apart, but not by a template") {
  const MemorySource train = synthetic_digits(synthetic_train_seed, 4000);
  const MemorySource test = synthetic_digits(synthetic_test_seed, 1000);
  std::vector<double> mean(10 * 784);
  std::vector<int> count(10);
  for (size_t i = 0; i < 4000; ++i) {
    const auto digit = static_cast<size_t>(train.labels()[i]);
    ++count[digit];
    for (size_t p = 0; p < 784; ++p) mean[digit * 784 + p] += train.images()[i * 784 + p];
  }
  for (size_t digit = 0; digit < 10; ++digit) {
    CHECK(count[digit] > 300);
    CHECK(count[digit] < 500);
    for (size_t p = 0; p < 784; ++p) mean[digit * 784 + p] /= count[digit];
  }
  int right = 0;
  for (size_t i = 0; i < 1000; ++i) {
    std::vector<double> distance(10);
    for (size_t j = 0; j < 10 * 784; ++j) {
      const double apart = test.images()[i * 784 + j % 784] - mean[j];
      distance[j / 784] += apart * apart;
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == test.labels()[i];
  }
  MESSAGE("nearest class mean: " << right << " of 1000");
  CHECK(right > 600);
  CHECK(right < 950);
}

// Image i is the two bytes of i, so that a batch tells which samples it holds.
MemorySource numbered(int64_t count) {
  SampleInfo info;
  info.name = "numbered";
  info.rows = 1;
  info.columns = 2;
  info.scale = {0.25f, 0.5f};
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    images.push_back(static_cast<uint8_t>(i >> 8));
    images.push_back(static_cast<uint8_t>(i));
    labels.push_back(static_cast<int32_t>(i));
  }
  return {info, std::move(images), std::move(labels)};
}

std::vector<int64_t> epoch_order(Loader& loader) {
  std::vector<int64_t> order;
  for (int64_t batch = 0; batch < loader.batches_per_epoch(); ++batch) {
    const Batch next = loader.next();
    const std::vector<uint8_t> images = next.images.to_vector<uint8_t>();
    const std::vector<int32_t> labels = next.labels.to_vector<int32_t>();
    CHECK(next.images.shape() == Shape{static_cast<int64_t>(labels.size()), 1, 2, 1});
    for (size_t i = 0; i < labels.size(); ++i) {
      CHECK(images[2 * i] * 256 + images[2 * i + 1] == labels[i]);
      order.push_back(labels[i]);
    }
  }
  return order;
}

TEST_CASE("loader: every epoch is a permutation that depends on seed and epoch alone") {
  for (const int64_t count : {1, 2, 7, 300}) {
    const MemorySource set = numbered(count);
    std::vector<int64_t> sorted(set.labels().begin(), set.labels().end());
    for (const int64_t batch : {1, 3, 7, 1000}) {
      CAPTURE(count);
      CAPTURE(batch);
      Loader loader(set, {.batch = batch, .seed = 5});
      Loader other(set, {.batch = 64, .seed = 6});
      Loader straight(set, {.batch = batch, .shuffle = false});
      CHECK(loader.samples() == count);
      CHECK(loader.batches_per_epoch() == (count + batch - 1) / batch);
      CHECK(loader.pixel_scale().mean == 0.25f);
      const std::vector<int64_t> first = epoch_order(loader);
      CHECK(loader.epoch() == 1);
      CHECK(loader.position() == 0);
      const std::vector<int64_t> second = epoch_order(loader);
      for (std::vector<int64_t> order : {first, second}) {
        std::sort(order.begin(), order.end());
        CHECK(order == sorted);
      }
      CHECK(epoch_order(straight) == sorted);
      CHECK(epoch_order(straight) == sorted);
      if (count == 300) {
        CHECK(first != second);
        CHECK(first != sorted);
        CHECK(epoch_order(other) != first);
      }
      loader.next();
      loader.start_epoch(1);
      CHECK(epoch_order(loader) == second);
      Loader again(set, {.batch = 2, .seed = 5});  // another batch size, the same order
      CHECK(epoch_order(again) == first);
    }
  }
}

TEST_CASE("loader: the last batch is short, and a batch larger than the set is the set") {
  const MemorySource set = numbered(10);
  const auto sizes = [&](int64_t batch) {
    Loader loader(set, {.batch = batch});
    std::vector<int64_t> seen;
    for (int i = 0; i < 4; ++i) seen.push_back(loader.next().labels.size());
    return seen;
  };
  CHECK(sizes(4) == std::vector<int64_t>{4, 4, 2, 4});
  CHECK(sizes(5) == std::vector<int64_t>{5, 5, 5, 5});
  CHECK(sizes(10) == std::vector<int64_t>{10, 10, 10, 10});
  CHECK(sizes(INT64_MAX) == std::vector<int64_t>{10, 10, 10, 10});
}

TEST_CASE("loader: wrong options") {
  const MemorySource set = numbered(3), empty = numbered(0);
  CHECK(failure_of([&] { Loader(set, {.batch = 0}); }).code == ExitCode::usage);
  CHECK(failure_of([&] { Loader(set, {.batch = -1}); }).message == "batch size -1: expected 1 or more");
  CHECK(failure_of([&] { Loader(empty, {.batch = 1}); }).code == ExitCode::bad_input);
  CHECK(failure_of([&] { MemorySource(set.info(), set.images(), {1, 2}); }).code == ExitCode::usage);
  Loader loader(set, {.batch = 1});
  CHECK(failure_of([&] { loader.start_epoch(-1); }).code == ExitCode::usage);
  CHECK(failure_of([&] { loader.start_epoch(int64_t{1} << 32); }).code == ExitCode::usage);
}

}  // namespace
