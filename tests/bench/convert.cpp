// `halfstep-bench data convert` as its users meet it, between all formats, and when it cannot end well.
#include <fmt/format.h>

#include "data/formats/image_file.h"
#include "data/open_dataset.h"
#include "tests/support/bench_program.h"
#include "tests/support/image_classes.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

Ended convert(const TemporaryFolder& folder, Words words, Surroundings around = {}) {
  words.insert(words.begin(), {"data", "convert"});
  around.folder = folder.path;
  return run_bench(words, around);
}

const Words small = {"--train", "300", "--test", "50"};
Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<Words> formats() {
  std::vector<Words> all = {
      {"idx"}, {"record"}, {"record", "--shards", "7", "--compress"}, {"tfrecord", "--shards", "3"}, {"pgm"}};
  if (can_read_png()) all.push_back({"png"});
  return all;
}

TEST_CASE("from each format into each other: the samples stay the same") {
  const TemporaryFolder folder;
  const Ended first = convert(folder, with({"synthetic", "first"}, small));
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(first.out.starts_with("first: 300 training and 50 test images as record, 2 files, "));
  CHECK(first.err.starts_with("train: 300 images in "));
  const auto sorted = [&](const std::string& name, Part part) {
    const auto source = open_dataset((folder / name).string(), part);
    std::multiset<std::string> samples;  // pixels and label: folders of images have an order of their own
    for (int64_t i = 0; i < source->info().count; ++i) {
      const std::vector<uint8_t> image = read_image(*source, i);
      samples.insert(std::string(image.begin(), image.end()) + std::to_string(source->label(i)));
    }
    return samples;
  };
  const auto train = sorted("first", Part::train), test = sorted("first", Part::test);
  CHECK(train.size() == 300);
  int number = 0;
  for (const Words& from : formats()) {
    const std::string middle = fmt::format("middle{}", number++);
    REQUIRE(convert(folder, with({"first", middle, "--quiet", "--format"}, from)).code == 0);
    for (const Words& to : formats()) {
      CAPTURE(from[0]);
      CAPTURE(to[0]);
      const std::string last = fmt::format("last{}", number++);
      const Ended ended = convert(folder, with({middle, last, "--quiet", "--format"}, to));
      CHECK_MESSAGE(ended.code == 0, ended.err);
      CHECK(ended.err == "");
      CHECK(sorted(last, Part::train) == train);
      CHECK(sorted(last, Part::test) == test);
      fs::remove_all(folder / last);
    }
    fs::remove_all(folder / middle);
  }
  CHECK(folder.names() == std::set<std::string>{"first"});
}

TEST_CASE("names of classes are kept where there is room for them, or a line says that they are not") {
  const TemporaryFolder folder;
  for (const std::string name : {"cat", "dog", "owl"}) {
    for (const std::string file : {"1.pgm", "2.pgm"}) write_bytes(folder / "Train" / name / file, grey_pgm(7));
    write_bytes(folder / "val" / name / "3.pgm", grey_pgm(9));
    write_bytes(folder / "dev" / name / "4.pgm", grey_pgm(9));
  }
  for (const std::string format : {"record", "idx", "tfrecord", "pgm"}) {
    const Ended ended = convert(folder, {".", "to_" + format, "--quiet", "--format", format});
    CHECK(ended.code == 0);
    CHECK(contains(ended.err, "not used: dev"));
    CHECK(ended.out.starts_with("to_" + format + ": 6 training and 3 test images as "));
    const bool kept = format == "record" || format == "pgm";
    CHECK(contains(ended.err, "the names of the classes, such as cat, are not kept") == !kept);
    const auto names = open_dataset((folder / ("to_" + format)).string(), Part::test)->info().class_names;
    CHECK(names == (kept ? std::vector<std::string>{"cat", "dog", "owl"} : std::vector<std::string>{}));
  }
}

TEST_CASE("to JPEG, which keeps what one sees, and from it in another size") {
  if (!can_read_jpeg()) return;
  const TemporaryFolder folder;
  REQUIRE(convert(folder, with({"synthetic", "exact", "--format", "pgm"}, small)).code == 0);
  REQUIRE(convert(folder, with({"synthetic", "lossy", "--format", "jpeg"}, small)).code == 0);
  REQUIRE(convert(folder, {"lossy", "sized", "--size", "7x14"}).code == 0);
  const auto exact = open_dataset((folder / "exact").string(), Part::test);
  const auto lossy = open_dataset((folder / "lossy").string(), Part::test);
  CHECK(open_dataset((folder / "sized").string(), Part::test)->info().shape() == ImageShape{7, 14});
  REQUIRE(lossy->info().count == 50);
  for (int64_t i = 0; i < 50; ++i) {
    CHECK(lossy->label(i) == exact->label(i));
    const std::vector<uint8_t> a = read_image(*exact, i), b = read_image(*lossy, i);
    double squares = 0;
    for (size_t k = 0; k < a.size(); ++k) squares += (a[k] - b[k]) * (a[k] - b[k]);
    CHECK(squares / static_cast<double>(a.size()) < 100);
  }
}

TEST_CASE("damaged images are listed, or left out of a training, which its record and its model remember") {
  const TemporaryFolder folder;
  REQUIRE(convert(folder, {"synthetic", "set", "--format", "pgm", "--train", "100", "--test", "100"}).code == 0);
  CHECK(convert(folder, {"set", "--check"}).out == "set: 200 samples, all can be read\n");
  const auto first_of = [&](const std::string& in) {
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder / "set" / in)) files.insert(entry.path());
    return *files.begin();
  };
  const fs::path damaged = first_of("train/000"), empty = first_of("test/003"), small_one = first_of("test/004");
  std::ofstream(damaged) << "P5 x";
  std::ofstream(empty) << "";
  std::ofstream(small_one) << "P5 1 1 255\nx";
  Ended checked = convert(folder, {"set", "--check"});
  const std::vector<std::string> lines = lines_of(std::exchange(checked.out, ""));
  REQUIRE(lines.size() == 3);
  CHECK(contains(lines[0], "set/train/000/" + damaged.filename().string() + ": PGM with a damaged header"));
  CHECK(contains(lines[1], "set/test/003/" + empty.filename().string() + ": starts neither"));
  CHECK(contains(lines[2], "set/test/004/" + small_one.filename().string() + ": 1 x 1 x 1, but the first image is 28"));
  check_one_line(checked, 3, "set: 3 problems, a line for each on stdout");
  CHECK(folder.names() == std::set<std::string>{"set"});
  fs::remove(small_one);
  check_one_line(convert(folder, {"set", "to", "--quiet"}), 3, "; --skip-damaged on leaves out damaged images");
  const Ended converted = convert(folder, {"set", "to", "--quiet", "--skip-damaged", "on"});
  CHECK(converted.out.starts_with("to: 99 training and 98 test images as record"));
  CHECK(contains(converted.err, "left out 2 damaged images, the first: set/train/000/"));

  const Surroundings here = {.folder = folder.path};
  const std::string train = "train --model mlp --epochs 1 --device cpu --quiet --data set ";
  check_one_line(run_bench_line(train, here), 3, "; --skip-damaged on leaves out damaged images");
  run_successfully(train + "--skip-damaged on --json r.json --save-model m", here);
  const json record = json::parse(read_text(folder / "r.json"));
  CHECK(record["data"]["left_out"] == 2);
  CHECK(record["data"]["train"] == 99);
  CHECK(record_of("train --recipe r.json --quiet", here)["rows"][0]["weights_sha256"] ==
        record["rows"][0]["weights_sha256"]);
  CHECK(record_of("evaluate --model m", here)["data"]["test"] == 98);
  check_one_line(run_bench_line("evaluate --model m --data to --skip-damaged on", here), 2,
                 "--skip-damaged on: to is no folder of images");
  for (const auto& entry : fs::directory_iterator(folder / "set/train/005")) std::ofstream(entry.path()) << "";
  check_one_line(run_bench_line(train + "--skip-damaged on", here), 3,
                 "set/train/005: no image of this class is left, all ");
}

TEST_CASE("data get runs the script that the program came with") {
  const TemporaryFolder folder;
  Surroundings here = {.folder = folder.path, .variables = {"HALFSTEP_MIRRORS=/nonexistent"}};
  const Ended unknown = run_bench_line("data get mnits", here);
  CHECK(unknown.err ==
        "halfstep-bench data get: no data set is called 'mnits', expected: mnist, fashion_mnist, cifar10 or "
        "tinyshakespeare\n");
  CHECK(unknown.code == 2);
  Ended none = run_bench_line("data get mnist here", here);
  CHECK(none.code == 4);
  CHECK(none.err.starts_with(
      "halfstep-bench data get: no mirror gave all files of MNIST: /nonexistent (no train-images"));
  CHECK(folder.names().empty());
  check_one_line(run_bench_line("data get"), 2, "data get NAME [DIR]: 0 given, expected 1 or more");
  here.variables = {"PATH=/nonexistent"};
  check_one_line(run_bench_line("data get mnist", here), 4,
                 "data get: bash cannot be started: No such file or directory; install it");
}

TEST_CASE("wrong words are one line, exit code 2, and nothing is written") {
  const TemporaryFolder folder;
  const struct {
    Words words;
    const char* part;
  } mistakes[] = {
      {{"synthetic"}, "data convert SRC DST: 1 given, expected 2; see halfstep-bench data convert --help"},
      {{"synthetic", "a", "--format", "hdf5"}, "--format hdf5: expected one of record, tfrecord, idx, png, jpeg, pgm"},
      {{"synthetic", "a", "--shards", "0"}, "--shards 0: expected a whole number from 1 to 256"},
      {{"synthetic", "a", "--shards", "257"}, "--shards 257: expected"},
      {{"synthetic", "a", "--format", "idx", "--shards", "2"}, "--shards 2: idx has none"},
      {{"synthetic", "a", "--format", "idx", "--compress"}, "--compress: idx has no such switch"},
      {{"synthetic", "a", "--train", "9", "--shards", "10"}, "10 shards of 9 samples: expected 1 to 9"},
      {{"synthetic", "a", "--check"}, "data convert SRC --check: 2 given, expected 1; see halfstep-bench"},
      {{"synthetic", ""}, "the value is empty"},
  };
  for (const auto& [words, part] : mistakes) check_one_line(convert(folder, words), 2, part);
  CHECK(folder.names().empty());
}

TEST_CASE("files and folders that are not there, in the way, or damaged") {
  const TemporaryFolder folder;
  check_one_line(convert(folder, {"none", "a"}), 4, "none: not found");
  check_one_line(convert(folder, {"mnist", "a"}), 4, "mnist: not found in /nonexistent/.cache/halfstep/mnist");
  check_one_line(convert(folder, {"synthetic", "no/where"}), 4, "no/where: cannot be made");
  std::ofstream(folder / "file") << "x";
  check_one_line(convert(folder, {"synthetic", "file"}), 4, "file: is there already");
  check_one_line(convert(folder, {"file", "a"}), 3, "file: expected a folder");
  fs::create_directory(folder / "empty");
  check_one_line(convert(folder, {"empty", "a"}), 3, "empty: no data set in this folder");

  REQUIRE(convert(folder, with({"synthetic", "set", "--quiet", "--shards", "2"}, small)).code == 0);
  check_one_line(convert(folder, {"set", "set"}), 4, "set: is there already");
  REQUIRE(convert(folder, {"set", "empty/", "--quiet"}).code == 0);  // an empty folder is no obstacle, whatever it is
  fs::create_directory(folder / "own");
  fs::create_directory_symlink("own", folder / "link");
  REQUIRE(convert(folder, {"set", "link", "--quiet"}).code == 0);
  fs::remove_all(folder / "own");
  fs::create_directory(folder / "own");
  const Ended here = run_bench_line("data convert ../set . --quiet", {.folder = folder / "own"});
  CHECK_MESSAGE(here.code == 0, here.err);
  CHECK(fs::exists(folder / "link" / "test.record-00000-of-00001"));
  fs::remove_all(folder / "own");
  fs::remove(folder / "link");
  const fs::path shard = folder / "set" / "test.record-00001-of-00002";
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary).seekp(4100).put('\x7f');
  const Ended damaged = convert(folder, {"set", "a", "--quiet"});
  check_one_line(damaged, 3, "test.record-00001-of-00002: block 0 of 1 is damaged");
  CHECK(damaged.err.find("(sample 25)") != std::string::npos);
  fs::remove(shard);
  check_one_line(convert(folder, {"set", "a", "--quiet"}), 3, "test.record-00001-of-00002: missing");
  CHECK(folder.names() == std::set<std::string>{"empty", "file", "set"});
}

TEST_CASE("a disk that takes no more: exit code 4, nothing at the path or beside it") {
  const TemporaryFolder folder;
  for (const Words& format : formats()) {
    CAPTURE(format[0]);
    // Single images and compressed shards are small, but the message must fit too.
    const rlim_t limit = format[0] == "png" || format[0] == "pgm" ? 150 : format.size() == 4 ? 4100 : 50'000;
    check_one_line(
        convert(folder, with(with({"synthetic", "a", "--quiet", "--format"}, format), small), {.file_limit = limit}), 4,
        "File too large");
    CHECK(folder.names().empty());
  }
}

}  // namespace
