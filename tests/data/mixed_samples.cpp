// The split into training and validation samples: disjoint, complete, mixed, and the same in every run.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "data/io/memory_source.h"

namespace {

using namespace hs;

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

}  // namespace
