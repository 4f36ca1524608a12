// CIFAR-10's binary files, with fewer records than the real ones: the layout, and files that are not what they should.
#include "data/formats/cifar10.h"
#include "data/open_dataset.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

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

fs::path file_of(const fs::path& folder, int64_t f) {
  return folder / (f == 0 ? "test_batch.bin" : "data_batch_" + std::to_string(f) + ".bin");
}
void write_set(const fs::path& folder, int64_t records) {
  for (int64_t f = 0; f <= 5; ++f) write_bytes(file_of(folder, f), batch(f, records));
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
  const DamagedFile file([](const fs::path& path) { open_cifar10(path.parent_path(), false, 1); }, "test_batch.bin");
  file.check_sizes(batch(0, 1), [](size_t size) { return fmt::format("{} bytes, expected 1 x 3073 = 3073", size); });
  for (const uint8_t label : {10, 255}) {
    Bytes changed = batch(0, 1);
    changed[0] = label;
    file.check_refused(changed, fmt::format("label {} of record 0", label));
  }
  const fs::path& folder = file.folder.path;
  write_set(folder, 1);
  // The real files have 10,000 records.
  check_refused(outcome_of([&] { open_dataset(folder.string(), Part::train); }), ExitCode::bad_input,
                file_of(folder, 1).string(), "expected 10000 x 3073 = 30730000");
  for (int64_t f = 0; f <= 5; ++f) {
    fs::remove(file_of(folder, f));
    check_refused(outcome_of([&] { open_cifar10(folder, f != 0, 1); }), ExitCode::io, file_of(folder, f).string(),
                  "cannot be opened");
    write_bytes(file_of(folder, f), batch(f, 1));
  }
}

}  // namespace
