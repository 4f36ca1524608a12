// CIFAR-10's binary files, with fewer records than the real ones: the layout, and files that are not what they should.
#include <doctest/doctest.h>

#include <thread>

#include "data/formats/cifar10.h"
#include "data/open_dataset.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

// Record r of file f: label (f + r) % 10; the value at row y, column x of channel c is 100 c + 3 y + x + r + 10 f.
uint8_t value(int64_t f, int64_t r, int64_t y, int64_t x, int64_t c) {
  return static_cast<uint8_t>(100 * c + 3 * y + x + r + 10 * f);
}
Bytes batch(int64_t f, int64_t records) {
  Bytes bytes;
  for (int64_t r = 0; r < records; ++r) {
    bytes.push_back(static_cast<uint8_t>((f + r) % 10));
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < 32; ++y) {
        for (int64_t x = 0; x < 32; ++x) bytes.push_back(value(f, r, y, x, c));
      }
    }
  }
  return bytes;
}

fs::path file(const fs::path& folder, int64_t f) {
  return folder / (f == 0 ? "test_batch.bin" : "data_batch_" + std::to_string(f) + ".bin");
}
void write_set(const fs::path& folder, int64_t records) {
  for (int64_t f = 0; f <= 5; ++f) write_bytes(file(folder, f), batch(f, records));
}

TEST_CASE("planes become pixels; five files of training images and one for the test") {
  const TemporaryFolder folder;
  write_set(folder.path, 3);
  for (const bool training : {true, false}) {
    const auto source = open_cifar10(folder.path, training, 3);
    CHECK(same_shape(source->info(), info_for(training ? 15 : 3, {32, 32, 3})));
    CHECK(source->info().name == "cifar10");
    for (int64_t i = 0; i < source->info().count; ++i) {
      const int64_t f = training ? 1 + i / 3 : 0, r = i % 3;
      const Bytes image = read_image(*source, i);
      bool same = source->label(i) == (f + r) % 10;
      for (int64_t p = 0; p < 3072; ++p) {
        same = same && image[static_cast<size_t>(p)] == value(f, r, p / 96, p / 3 % 32, p % 3);
      }
      CHECK(same);
    }
  }
}

TEST_CASE("cut at every byte, a byte too many, a label above 9, missing files") {
  const TemporaryFolder folder;
  write_set(folder.path, 1);
  const Bytes good = batch(3, 1);
  const std::string name = file(folder.path, 3).string() + ": ";
  const auto open_as = [&](const Bytes& bytes) {
    write_bytes(file(folder.path, 3), bytes);
    return outcome_of([&] { open_cifar10(folder.path, true, 1); });
  };
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    check_refused(open_as(cut), ExitCode::bad_input, name, std::to_string(size) + " bytes, expected 1 x 3073 = 3073");
  }
  Bytes longer = good;
  longer.push_back(0);
  check_refused(open_as(longer), ExitCode::bad_input, name, "3074 bytes, expected 1 x 3073");
  for (const uint8_t label : {10, 255}) {
    Bytes changed = good;
    changed[0] = label;
    check_refused(open_as(changed), ExitCode::bad_input, name, "label " + std::to_string(label) + " of record 0");
  }
  CHECK(open_as(good).code == ExitCode::ok);
  // The real files have 10,000 records.
  check_refused(outcome_of([&] { open_dataset(folder.path.string(), Part::train); }), ExitCode::bad_input,
                file(folder.path, 1).string(), "expected 10000 x 3073 = 30730000");
  for (int64_t f = 0; f <= 5; ++f) {
    fs::remove(file(folder.path, f));
    check_refused(outcome_of([&] { open_cifar10(folder.path, f != 0, 1); }), ExitCode::io,
                  file(folder.path, f).string(), "cannot be opened");
    write_bytes(file(folder.path, f), batch(f, 1));
  }
}

TEST_CASE("a file that shrinks or changes while it is open") {
  const TemporaryFolder folder;
  write_set(folder.path, 20);
  const auto source = open_cifar10(folder.path, true, 20);
  read_image(*source, 0);
  fs::resize_file(file(folder.path, 1), 5000);
  check_refused(outcome_of([&] { read_image(*source, 19); }), ExitCode::bad_input, file(folder.path, 1).string(),
                "has 5000 now; do not change a file in use (sample 19)");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // a tick of the clock of time stamps
  std::fstream(file(folder.path, 2), std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('x');
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  check_refused(outcome_of([&] { read_image(*source, 20); }), ExitCode::bad_input, file(folder.path, 2).string(),
                "was written to since it was opened; do not change a file in use (sample 20)");
}

}  // namespace
