// How a folder is recognised as a data set, whatever its format; and IDX files of any size and number of classes.
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>

#include "data/formats/cifar10.h"
#include "data/formats/idx.h"
#include "data/formats/image_file.h"
#include "data/formats/image_folder.h"
#include "data/formats/record_file.h"
#include "data/formats/tfrecord.h"
#include "data/open_dataset.h"
#include "tests/support/image_classes.h"
#include "tests/support/sample_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

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

TEST_CASE("data sets: names are looked for in the usual places, and bring their pixel scale") {
  const TemporaryFolder folder;
  const char* before = std::getenv("HALFSTEP_DATA");
  const std::string data = before != nullptr ? before : "";
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HALFSTEP_DATA", folder.path.c_str(), 1);
  setenv("HOME", (folder / "home").c_str(), 1);
  check_refused(outcome_of([] { find_dataset("fashion_mnist"); }), ExitCode::io, "fashion_mnist: not found in ",
                "`data/get fashion_mnist` downloads it");
  write_as("idx", folder / "home" / ".cache" / "halfstep" / "fashion_mnist");
  const auto source = open_dataset("fashion_mnist", Part::test);
  CHECK(source->info().name == "fashion_mnist");
  CHECK(source->info().scale.mean == 0.2860f);
  CHECK(source->info().classes == 10);
  write_as("tfrecord", folder / "fashion_mnist");
  CHECK(find_dataset("fashion_mnist").format == DataFormat::tfrecord);
  CHECK(open_dataset("fashion_mnist", Part::test)->info().scale.mean == 0.2860f);
  setenv("HOME", home.c_str(), 1);
  if (before != nullptr) {
    setenv("HALFSTEP_DATA", data.c_str(), 1);
  } else {
    unsetenv("HALFSTEP_DATA");
  }
  CHECK(find_dataset("synthetic").has(Part::test));
}

TEST_CASE("idx: images of any size up to 512 x 512, and no larger") {
  for (const Shape3 shape : {Shape3{1, 1}, Shape3{1, 512}, Shape3{512, 1}, Shape3{17, 300}, Shape3{512, 512}}) {
    CAPTURE(shape.rows);
    CAPTURE(shape.columns);
    const TemporaryFolder folder;
    SampleInfo train = info_for(4, shape, 1000), test = info_for(2, shape, 1000);
    write_all(*write_idx(folder / "train-images.idx3-ubyte", folder / "train-labels.idx1-ubyte", train), train);
    write_all(*write_idx(folder / "t10k-images.idx3-ubyte", folder / "t10k-labels.idx1-ubyte", test), test);
    train.classes = test.classes = 7 * 3 + 3 + 1;  // the largest label of both parts, and one
    for (const Part part : {Part::train, Part::test}) {
      const SampleInfo& expected = part == Part::train ? train : test;
      const auto source = open_dataset(folder.path.string(), part);
      CHECK(same_shape(source->info(), expected));
      for (int64_t i = 0; i < expected.count; ++i) {
        CHECK(read_image(*source, i) == image_of(expected, i));
        CHECK(source->label(i) == 7 * i + 3);
      }
    }
  }
  for (const Shape3 shape : {Shape3{513, 1}, Shape3{1, 513}}) {
    const TemporaryFolder folder;
    const SampleInfo info = info_for(1, shape);
    write_all(*write_idx(folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte", info), info);
    check_refused(outcome_of([&] { open_dataset(folder.path.string(), Part::train); }), ExitCode::bad_input,
                  (folder / "train-images-idx3-ubyte").string(),
                  fmt::format("images of {} x {} pixels, expected at most 512 x 512", shape.rows, shape.columns));
  }
}

// A file of each format, and of none.
std::vector<std::pair<std::string, Bytes>> files_of_every_format() {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(4, {8, 8, 1});
  write_all(*write_idx(folder / "images", folder / "labels", info), info);
  write_all(*write_records(folder / "record", info), info);
  write_all(*write_tfrecords(folder / "tfrecord", info), info);
  write_all(*write_image_folder(folder / "pgm", info, ImageFormat::pgm), info);
  Bytes batch(cifar10_record_bytes, 5);
  return {{"images", read_bytes(folder / "images")},
          {"labels", read_bytes(folder / "labels")},
          {"record", read_bytes(folder / "record-00000-of-00001")},
          {"tfrecord", read_bytes(folder / "tfrecord-00000-of-00001")},
          {"image", read_bytes(folder / "pgm" / "003" / "0000000.pgm")},
          {"cifar10", batch},
          {"zeros", Bytes(100'000)},
          {"text", bytes_of(std::string(5000, 'A'))},
          {"empty", {}}};
}

TEST_CASE("every reader refuses what is of another format, in one line with the file's name") {
  const TemporaryFolder folder;
  const std::string path = (folder / "set" / "test_batch.bin").string();
  const std::vector<std::pair<std::string, std::function<void()>>> readers = {
      {"images", [&] { read_idx_images(path); }},
      {"labels", [&] { read_idx_labels(path, 1000); }},
      {"record", [&] { open_records(folder / "set" / "a"); }},
      {"tfrecord", [&] { open_tfrecords(path); }},
      {"image", [&] { decode_image(read_bytes(path), path); }},
      {"cifar10", [&] { open_cifar10(folder / "set", false, 1); }}};
  int refused = 0;
  for (const auto& [format, bytes] : files_of_every_format()) {
    write_bytes(path, bytes);
    write_bytes(folder / "set" / "a-00000-of-00001", bytes);
    for (const auto& [reader, read] : readers) {
      CAPTURE(format);
      CAPTURE(reader);
      const Outcome outcome = outcome_of(read);
      if (reader == format) {
        CHECK(outcome.code == ExitCode::ok);
      } else {
        check_refused(outcome, ExitCode::bad_input, (folder / "set").string(), ": ");
        ++refused;
      }
    }
  }
  CHECK(refused == 9 * 6 - 6);
}

TEST_CASE("idx: labels of up to 1,000 classes") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(1200, {2, 2, 1}, 1000);
  write_all(*write_idx(folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte", info), info);
  const Bytes labels = read_bytes(folder / "train-labels-idx1-ubyte");
  CHECK(labels.size() == 8 + 2 * 1200);
  CHECK(labels[2] == 0x0b);
  const auto source = open_dataset(folder.path.string(), Part::train);
  CHECK(same_shape(source->info(), info));
  CHECK(first_wrong(*source, info) == -1);

  const auto parse = [](const Bytes& bytes) {
    std::vector<int32_t> values;
    const Outcome outcome = outcome_of([&] { values = parse_idx_labels(bytes, "FILE", 1000); });
    return std::make_pair(outcome, values);
  };
  CHECK(parse({0, 0, 8, 1, 0, 0, 0, 2, 7, 255}).second == std::vector<int32_t>{7, 255});
  CHECK(parse({0, 0, 0x0b, 1, 0, 0, 0, 2, 0, 7, 3, 231}).second == std::vector<int32_t>{7, 999});
  CHECK(parse({0, 0, 0x0c, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 3, 231}).second == std::vector<int32_t>{7, 999});
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 1, 3, 232}).first, ExitCode::bad_input,
                "FILE: ", "label 1000 of sample 0");
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 1, 255, 255}).first, ExitCode::bad_input,
                "FILE: ", "label -1 of sample 0");
  check_refused(parse({0, 0, 0x0c, 1, 0, 0, 0, 1, 128, 0, 0, 0}).first, ExitCode::bad_input,
                "FILE: ", "label -2147483648");
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 2, 0, 1}).first, ExitCode::bad_input, "FILE: ", "8 + 2 x 2 = 12 bytes");
  check_refused(parse({0, 0, 0x0c, 1, 255, 255, 255, 255, 0}).first, ExitCode::bad_input, "FILE: ", "4294967295 x 4");
  check_refused(parse({0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0}).first, ExitCode::bad_input,
                "FILE: ", "element type 0x0d");
  CHECK(outcome_of([&] { write_idx(folder / "x", folder / "y", info_for(1, {1, 1, 3})); }).code == ExitCode::usage);
}

}  // namespace
