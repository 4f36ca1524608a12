// The toy decodes as often as hs::SampleCache does, epoch by epoch.
#define main main_of_cache
#include "docs/techniques/toy/cache.cpp"
#undef main

#include <doctest/doctest.h>

#include "data/loader/loader.h"

namespace {

class Counted : public hs::SampleSource {
 public:
  explicit Counted(int64_t count) : SampleSource({{1, 1, 1}, "counted", "counted", count, 10}) {}
  mutable int reads = 0;

 private:
  void read_sample(int64_t index, uint8_t* image) const override { ++reads, *image = static_cast<uint8_t>(index); }
  int32_t sample_label(int64_t) const override { return 0; }
};

}  // namespace

TEST_CASE("toy: a cache") {
  const std::vector<int> expected = decodes<Cache>(30, 30, 3);
  const Counted source(30);
  hs::Loader loader(source, {.batch = 4, .workers = 0, .cache = hs::CacheMode::ram});
  for (const int in_epoch : expected) {
    const int before = source.reads;
    for (int64_t batch = 0; batch < loader.batches_per_epoch(); ++batch) {
      const hs::Batch next = loader.next();
      const std::vector<uint8_t> pixels = next.images.to_vector<uint8_t>();
      CHECK(std::vector<int32_t>(pixels.begin(), pixels.end()) == next.samples.to_vector<int32_t>());
    }
    CHECK(source.reads - before == in_epoch);
  }
  CHECK(main_of_cache() == 0);
}
