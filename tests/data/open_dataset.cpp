// How a folder is recognised as a data set, whatever its format; where MNIST is looked for; which files belong
// together.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "data/io/memory_source.h"
#include "data/open_dataset.h"
#include "engine/files/npy.h"
#include "tests/support/image_classes.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

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

// The same set in every format that a folder can hold: 12 training and 5 test samples of 4 classes.
const SampleInfo train_info = info_for(12, {4, 4, 1}, 4), test_info = info_for(5, {4, 4, 1}, 4);
void write_as(const std::string& format, const fs::path& folder) {
  fs::create_directories(folder);
  for (const bool training : {true, false}) {
    const SampleInfo& info = training ? train_info : test_info;
    const fs::path base = folder / (training ? "train" : "test"), idx = folder / (training ? "train" : "t10k");
    const auto with = [](fs::path path, const char* suffix) { return path += suffix; };
    std::unique_ptr<SampleWriter> writer;
    if (format == "idx") writer = write_idx(with(idx, "-images-idx3-ubyte"), with(idx, "-labels.idx1-ubyte"), info);
    if (format == "record") writer = write_records(with(base, ".record"), info, {.shards = 2});
    if (format == "tfrecord") writer = write_tfrecords(with(base, ".tfrecord"), info, 2);
    if (format == "images") writer = write_image_folder(base, info, ImageFormat::pgm);
    write_all(*writer, info);
  }
}
const std::vector<std::string> formats = {"idx", "record", "tfrecord", "images"};

TEST_CASE("data sets: the files of a folder tell the format, and every format gives the same samples") {
  for (const std::string& format : formats) {
    CAPTURE(format);
    const TemporaryFolder folder;
    write_as(format, folder / "some");
    for (const fs::path& path : {folder / "some", folder / "some" / ""}) {
      const FoundDataset found = find_dataset(path.string());
      CHECK(name(found.format) == format);
      for (const Part part : {Part::train, Part::test}) {
        const SampleInfo& info = part == Part::train ? train_info : test_info;
        const auto source = open_dataset(found, part);
        CHECK(same_shape(source->info(), info));
        CHECK(source->info().name == (format == "record" ? "numbered" : "some"));
        if (format != "images") CHECK(first_wrong(*source, info) == -1);
      }
    }
    // With a limit, the first samples.
    for (const int64_t limit : {2, 5, 6}) {
      SampleInfo first = test_info;
      first.count = std::min<int64_t>(limit, 5);
      const auto source = open_dataset((folder / "some").string(), Part::test, limit);
      CHECK(same_shape(source->info(), first));
      if (format != "images") CHECK(first_wrong(*source, first) == -1);
      CHECK(outcome_of([&] { source->label(first.count); }).code == ExitCode::usage);
    }
    // Two formats in one folder.
    write_as(format == "idx" ? "record" : "idx", folder / "some");
    check_refused(outcome_of([&] { find_dataset((folder / "some").string()); }), ExitCode::bad_input,
                  (folder / "some").string(), "files of two formats, ");
  }
}

TEST_CASE("data sets: parts that are not there, single files, and class folders without parts") {
  const TemporaryFolder folder;
  write_as("record", folder / "a");
  for (const char* file : {"train.record", "train.record-00001-of-00002"}) {
    const FoundDataset found = find_dataset((folder / "a" / file).string());
    CHECK(found.has(Part::train));
    CHECK(!found.has(Part::test));
    CHECK(first_wrong(*open_dataset(found, Part::train), train_info) == -1);
    CHECK(outcome_of([&] { open_dataset(found, Part::test); }).code == ExitCode::io);
  }
  write_classes(folder / "pets");
  const FoundDataset pets = find_dataset((folder / "pets").string());
  CHECK(pets.format == DataFormat::images);
  CHECK(!pets.has(Part::test));
  CHECK(open_dataset(pets, Part::train)->info().count == 3);

  write_as("images", folder / "b");
  fs::rename(folder / "b" / "test" / "002", folder / "b" / "test" / "2");
  check_refused(outcome_of([&] { open_dataset((folder / "b").string(), Part::train); }), ExitCode::bad_input,
                (folder / "b").string(), "has the class 002 where");

  write_as("idx", folder / "c");
  fs::remove(folder / "c" / "t10k-labels.idx1-ubyte");
  check_refused(outcome_of([&] { open_dataset((folder / "c").string(), Part::test); }), ExitCode::io,
                (folder / "c").string(), "t10k-labels-idx1-ubyte not found");
  CHECK(open_dataset((folder / "c").string(), Part::train)->info().count == 12);

  fs::create_directory(folder / "empty");
  check_refused(outcome_of([&] { find_dataset((folder / "empty").string()); }), ExitCode::bad_input,
                (folder / "empty").string(), "no data set in this folder");
  CHECK(outcome_of([&] { find_dataset((folder / "none").string()); }).code == ExitCode::io);
  write_bytes(folder / "file.bin", {});
  CHECK(outcome_of([&] { find_dataset((folder / "file.bin").string()); }).code == ExitCode::bad_input);
}

TEST_CASE("data sets: the scale of pixels is measured over the training part, whatever a folder is called") {
  double sum = 0, squares = 0, count = 0;
  for (int64_t i = 0; i < train_info.count; ++i) {
    for (const uint8_t pixel : image_of(train_info, i))
      sum += pixel / 255.0, squares += pixel * pixel / 65025.0, ++count;
  }
  const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
  for (const std::string& format : formats) {
    const TemporaryFolder folder;
    for (const char* name : {"mnist", "fashion-mnist", "fashion_mnist"}) {
      write_as(format, folder / name);
      for (const Part part : {Part::train, Part::test}) {
        const SampleInfo info = open_dataset((folder / name).string(), part, 2)->info();
        CAPTURE(format);
        CHECK(info.scale.mean == doctest::Approx(format == "record" ? 0.25 : mean).epsilon(1e-3));
        CHECK(info.scale.deviation == doctest::Approx(format == "record" ? 0.5 : deviation).epsilon(1e-3));
        CHECK(info.class_names.empty());
      }
    }
  }
}

TEST_CASE("data sets: names are looked for in the usual places, and bring their pixel scale") {
  const TemporaryFolder folder;
  const Environment data("HALFSTEP_DATA", folder.path.string()), home("HOME", (folder / "home").string());
  check_refused(outcome_of([] { find_dataset("fashion_mnist"); }), ExitCode::io, "fashion_mnist: not found in ",
                "`halfstep-bench data get fashion_mnist` downloads it");
  write_as("idx", folder / "home" / ".cache" / "halfstep" / "fashion_mnist");
  const auto source = open_dataset("fashion_mnist", Part::test);
  CHECK(source->info().name == "fashion_mnist");
  CHECK(source->info().scale.mean == 0.2860f);
  CHECK(source->info().classes == 10);
  CHECK(source->info().class_names.back() == "Ankle boot");
  write_as("tfrecord", folder / "fashion_mnist");
  CHECK(find_dataset("fashion_mnist").format == DataFormat::tfrecord);
  CHECK(open_dataset("fashion_mnist", Part::test)->info().scale.mean == 0.2860f);
  CHECK(find_dataset("synthetic").has(Part::test));
}

// A set of 6 training and 4 test samples of 3 x 2 pixels, as MNIST is published.
const SampleInfo train_digits = info_for(6), test_digits = info_for(4);
void write_digits(const fs::path& folder, const std::string& separator = "-", const std::string& suffix = "") {
  fs::create_directories(folder);
  for (const bool training : {true, false}) {
    const SampleInfo& info = training ? train_digits : test_digits;
    const std::string stem = training ? "train" : "t10k";
    const fs::path images = folder / (stem + "-images" + separator + "idx3-ubyte" + suffix);
    const fs::path labels = folder / (stem + "-labels" + separator + "idx1-ubyte" + suffix);
    write_all(*write_idx(images, labels, info), info);
    if (suffix.empty()) continue;
    for (const fs::path& path : {images, labels}) write_bytes(path, gzip(read_bytes(path)));
  }
}

TEST_CASE("digits: MNIST in both spellings, plain and gzip") {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const TemporaryFolder folder;
      const Environment data("HALFSTEP_DATA", folder.path.string());
      write_digits(folder / "mnist", separator, suffix);
      const FoundDataset found = find_digits();
      CHECK(found.format == DataFormat::idx);
      const auto train = open_dataset(found, Part::train), test = open_dataset(found, Part::test, 3);
      CHECK(train->info().name == "mnist");
      CHECK(same_shape(train->info(), train_digits));
      CHECK(train->info().scale.mean == 0.1307f);
      CHECK(train->info().scale.deviation == 0.3081f);
      CHECK(train->info().description.find(folder.path.string()) != std::string::npos);
      CHECK(first_wrong(*train, train_digits) == -1);
      CHECK(test->info().count == 3);
      CHECK(first_wrong(*test, info_for(3)) == -1);
      CHECK(open_dataset(found, Part::test, 5)->info().count == 4);
    }
  }
}

TEST_CASE("digits: MNIST in the usual places, in order, then generated digits") {
  const TemporaryFolder data_folder, home_folder;
  const Environment data("HALFSTEP_DATA", data_folder.path.string());
  const Environment home("HOME", home_folder.path.string());
  const fs::path in_data = data_folder / "mnist", in_home = home_folder.path / ".cache/halfstep/mnist";

  const FoundDataset made = find_digits();
  CHECK(made.format == DataFormat::generated);
  CHECK(open_dataset(made, Part::train, 20)->info().name == "synthetic digits");
  CHECK(open_dataset(made, Part::train, 20)->info().count == 20);
  CHECK(open_dataset(made, Part::test, 60000)->info().count == 10000);

  // What other formats leave there is ignored.
  fs::create_directories(in_data / "train" / "0");
  CHECK(find_digits().format == DataFormat::generated);
  write_digits(in_home);
  CHECK(find_digits().train == in_home);
  write_digits(in_data);
  CHECK(find_digits().train == in_data);

  // Half a set is an error, not a reason to use other data.
  fs::remove(in_data / "t10k-labels-idx1-ubyte");
  check_refused(outcome_of([] { find_digits(); }), ExitCode::io, in_data.string() + ": ", "t10k-labels-idx1-ubyte");

  for (const std::optional<std::string>& value : {std::optional<std::string>{}, std::optional<std::string>{""}}) {
    const Environment no_data("HALFSTEP_DATA", value), no_home("HOME", {});
    CHECK(find_digits().format == DataFormat::generated);
  }
}

TEST_CASE("digits: files that do not belong together, also beyond the limit") {
  const auto images = [](uint32_t count, uint32_t rows = 3, uint32_t columns = 2) {
    return big_endian({0x803, count, rows, columns}) + Bytes(count * rows * columns);
  };
  const auto labels = [](const Bytes& values) {
    return big_endian({0x801, static_cast<uint32_t>(values.size())}) + values;
  };
  struct Row {
    const char* file;  // replaced by `bytes`
    Bytes bytes;
    int64_t train_limit, test_limit;
    const char* part;
  };
  const Row rows[] = {
      {"train-images-idx3-ubyte", images(7), 0, 0, "holds 7 images but"},
      {"train-images-idx3-ubyte", images(7), 2, 2, "holds 6 labels"},
      {"t10k-labels-idx1-ubyte", labels({1}), 0, 0, "holds 1 labels"},
      {"t10k-labels-idx1-ubyte", labels({1, 2, 3, 10}), 0, 1, "label 10 of sample 3"},
      {"t10k-images-idx3-ubyte", images(4, 2, 3), 0, 0, "are 3 x 2 x 1 of 10 classes but test images 2 x 3"},
      {"train-images-idx3-ubyte", images(0), 0, 0, "a dimension is 0"},
      {"train-images-idx3-ubyte", labels({5, 0, 4, 1, 9, 2, 0, 0}), 0, 0, "swapped?"},
  };
  const TemporaryFolder root;
  const fs::path folder = root / "mnist";
  const Environment data("HALFSTEP_DATA", root.path.string());
  const auto open_both = [&](int64_t train_limit, int64_t test_limit) {
    return outcome_of([&] {
      const FoundDataset found = find_digits();
      const auto train = open_dataset(found, Part::train, train_limit),
                 test = open_dataset(found, Part::test, test_limit);
      check_one_set(folder.string(), train->info(), test->info());
    });
  };
  for (const Row& row : rows) {
    write_digits(folder);
    CHECK(open_both(6, 4).code == ExitCode::ok);
    write_bytes(folder / row.file, row.bytes);
    check_refused(open_both(row.train_limit, row.test_limit), ExitCode::bad_input, folder.string(), row.part);
  }
}

TEST_CASE("the real mnist") {
  const char* data = std::getenv("HALFSTEP_DATA");
  if (data == nullptr || !fs::exists(fs::path(data) / "mnist")) {
    MESSAGE("skipped: $HALFSTEP_DATA/mnist does not exist, so there is no real MNIST to read");
    return;
  }
  const auto check_part = [](Part part, int64_t count, const std::vector<int32_t>& first_labels) {
    const MemorySource set = load_samples(*open_dataset(find_digits(), part));
    CHECK(set.info().count == count);
    CHECK(std::ssize(set.images()) == count * 784);
    CHECK(std::vector(set.labels().begin(), set.labels().begin() + 5) == first_labels);
  };
  check_part(Part::train, 60000, {5, 0, 4, 1, 9});
  check_part(Part::test, 10000, {7, 2, 1, 0, 4});
  CHECK(open_dataset(find_digits(), Part::train, 20000)->info().count == 20000);
}

TEST_CASE("idx: images are at most 512 x 512") {
  for (const ImageShape shape : {ImageShape{513, 1}, ImageShape{1, 513}}) {
    const TemporaryFolder folder;
    const SampleInfo info = info_for(1, shape);
    write_all(*write_idx(folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte", info), info);
    check_refused(outcome_of([&] { open_dataset(folder.path.string(), Part::train); }), ExitCode::bad_input,
                  (folder / "train-images-idx3-ubyte").string(),
                  fmt::format("images of {} x {} pixels, expected at most 512 x 512", shape.rows, shape.columns));
  }
}

TEST_CASE("data sets: arrays of NumPy") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const Tensor& tensor) {
    write_bytes(folder / "set" / (name + ".npy"), bytes_of(to_npy(tensor)));
  };
  const auto refused = [&](const std::string& name, const Tensor& wrong, const Tensor& right, const std::string& part) {
    write(name, wrong);
    check_refused(outcome_of([&] { open_dataset((folder / "set").string(), Part::train); }), ExitCode::bad_input,
                  (folder / "set" / name).string() + ".npy: ", part);
    write(name, right);
  };
  const Tensor vectors = Tensor::from<float>({1, -2, 3, 1e9f, -0.0f, 6}, {3, 2});
  const Tensor labels = Tensor::from<int32_t>({0, 3, 1}, {3});
  write("x_train", vectors);
  write("y_train", labels);
  const FoundDataset found = find_dataset((folder / "set").string());
  CHECK(name(found.format) == std::string("arrays"));
  CHECK(!found.has(Part::test));
  const auto train = open_dataset(found, Part::train);
  CHECK(train->info().text() == "1 x 2 x 1 f32");
  CHECK(train->info().scale == PixelScale{0, 1});
  CHECK(train->info().classes == 4);
  CHECK(train->label(1) == 3);
  const std::vector<uint8_t> second = read_image(*train, 1);
  CHECK(std::memcmp(second.data(), vectors.data<float>() + 2, 8) == 0);
  CHECK(load_samples(*train).images() != std::vector<uint8_t>(24));
  // A part with more classes counts; images of bytes are normalised as any.
  write("X_test", vectors);
  write("y_test", Tensor::from<uint8_t>({6, 0, 0}, {3}));
  CHECK(open_dataset((folder / "set").string(), Part::train)->info().classes == 7);
  CHECK(open_dataset((folder / "set").string(), Part::test)->info().count == 3);
  const Tensor bytes = Tensor::from<uint8_t>({0, 255, 0, 255}, {1, 2, 2});
  write("X_train", bytes);
  write("y_train", Tensor::from<int32_t>({2}, {1}));
  const auto images = open_dataset((folder / "set").string(), Part::train);
  CHECK(images->info().text() == "2 x 2 x 1");
  CHECK(images->info().scale == PixelScale{0.5f, 0.5f});
  CHECK(outcome_of([&] { check_one_set("", images->info(), train->info()); }).code == ExitCode::bad_input);
  fs::remove(folder / "set" / "X_train.npy");
  write("y_train", labels);

  refused("x_train", Tensor::from<double>({1, 2, 3}, {3, 1}), vectors, ": f64(3, 1), expected u8 or f32 of shape");
  refused("x_train", Tensor::from<float>({1, 2, 3}, {3}), vectors, ": f32(3), expected u8 or f32 of shape (N, F)");
  refused("x_train", Tensor::zeros({3, 0}, DType::f32), vectors, ": f32(3, 0), expected");
  refused("x_train", Tensor::zeros({3, 2, 2, 5}, DType::f32), vectors,
          "samples of 2 x 2 x 5 f32, expected at most 512");
  refused("x_train", Tensor::zeros({3, 300000}, DType::f32), vectors,
          "expected at most 512 x 512 x 4 and 1048576 bytes");
  refused("x_train", Tensor::from<float>({0, 0, 0, NAN, 0, 0}, {3, 2}), vectors, "a value of sample 1 is nan");
  refused("y_train", Tensor::from<int32_t>({0, 1}, {2}), labels, ": i32(2), expected one for each of 3 samples");
  refused("y_train", Tensor::from<int32_t>({0, 1, 2}, {3, 1}), labels, "integers of shape (3)");
  refused("y_train", Tensor::from<int32_t>({0, -1, 2}, {3}), labels, "label -1 of sample 1, expected classes from 0");
  refused("y_train", Tensor::from<int32_t>({0, 1, 1000}, {3}), labels, "label 1000 of sample 2, expected classes from");
  refused("y_train", vectors, labels, "labels are f32(3, 2), expected integers, the classes from 0");
  CHECK(open_dataset((folder / "set").string(), Part::train)->info().count == 3);
  fs::remove(folder / "set" / "y_train.npy");
  check_refused(outcome_of([&] { open_dataset((folder / "set").string(), Part::train); }), ExitCode::io,
                (folder / "set" / "y_train.npy").string(), "cannot be opened");
}

}  // namespace
