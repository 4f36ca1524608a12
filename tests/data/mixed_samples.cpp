// The split into training and validation samples: disjoint, complete, mixed, and the same in every run.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "data/formats/image_folder.h"
#include "data/io/memory_source.h"
#include "tests/support/image_classes.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

TEST_CASE("two parts of a mixed set share no sample, miss none, and contain every class of an ordered set") {
  constexpr int64_t count = 100, classes = 5, held_out = 25;
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    images.push_back(static_cast<uint8_t>(i));
    labels.push_back(static_cast<int32_t>(i * classes / count));  // ordered by class
  }
  SampleInfo info;
  info.rows = info.columns = 1;
  info.classes = classes;
  const MemorySource source(info, images, labels);
  constexpr SampleOrder mixed = SampleOrder::mixed;
  const PartOfSamples train(source, 0, count - held_out, mixed), validation(source, count - held_out, held_out, mixed);
  CHECK(train.info().count == count - held_out);
  CHECK(validation.info().count == held_out);
  std::set<uint8_t> seen;
  std::set<int32_t> classes_held_out;
  for (const PartOfSamples* part : {&train, &validation}) {
    for (int64_t i = 0; i < part->info().count; ++i) {
      uint8_t pixel = 0;
      part->read(i, &pixel);
      CHECK(seen.insert(pixel).second);
      CHECK(part->label(i) == labels[pixel]);
      if (part == &validation) classes_held_out.insert(part->label(i));
    }
  }
  CHECK(seen.size() == count);
  CHECK(classes_held_out.size() == classes);
  const PartOfSamples again(source, count - held_out, held_out, mixed);
  for (int64_t i = 0; i < held_out; ++i) CHECK(again.label(i) == validation.label(i));
}

TEST_CASE("a part is cut off by what samples are: taking one away moves none of the others") {
  const TemporaryFolder folder;
  for (int i = 0; i < 90; ++i)
    write_bytes(folder / "set" / (i % 2 ? "a" : "b") / fmt::format("{}.pgm", i), grey_pgm(static_cast<uint8_t>(i)));
  const auto opened = [&] { return std::shared_ptr(open_image_folder(folder / "set")); };
  // A source cannot be moved, which make_shared() would do.
  const auto in_memory = [&] { return std::shared_ptr<SampleSource>(new MemorySource(load_samples(*opened()))); };
  const auto test_samples = [](const std::shared_ptr<const SampleSource>& all, double fraction) {
    const auto [train, test] = split_samples(all, fraction);
    std::set<uint8_t> in_test, in_train;
    for (int64_t i = 0; i < test->info().count; ++i) in_test.insert(read_image(*test, i)[0]);
    for (int64_t i = 0; i < train->info().count; ++i) in_train.insert(read_image(*train, i)[0]);
    CHECK(in_test.size() + in_train.size() == static_cast<size_t>(all->info().count));
    return in_test;
  };
  const std::set<uint8_t> by_name = test_samples(opened(), 0.2), by_pixels = test_samples(in_memory(), 0.2);
  CHECK(by_name.size() >= 9);
  CHECK(by_name.size() <= 27);
  CHECK(test_samples(opened(), 1e-9).size() == 1);
  CHECK(test_samples(opened(), 0.999999999).size() == 89);
  CHECK_THROWS_WITH_AS(test_samples(opened(), 2),
                       "split_samples: a fraction of 2, expected more than 0 and less than 1", Error);
  for (const int gone : {0, 1, 44, 89}) {
    const fs::path file = folder / "set" / (gone % 2 ? "a" : "b") / fmt::format("{}.pgm", gone);
    fs::remove(file);
    for (const auto& [before, after] :
         {std::pair{by_name, test_samples(opened(), 0.2)}, std::pair{by_pixels, test_samples(in_memory(), 0.2)}}) {
      std::set<uint8_t> expected = before;
      expected.erase(static_cast<uint8_t>(gone));
      CHECK(after == expected);
    }
    write_bytes(file, grey_pgm(static_cast<uint8_t>(gone)));
  }
}

}  // namespace
