// hs::Loader asks for as many batches ahead as the toy's arithmetic says, and delivers in order.
#define main main_of_prefetch
#include "docs/techniques/toy/prefetch.cpp"
#undef main

#include <doctest/doctest.h>

#include <atomic>

#include "data/loader/loader.h"

namespace {

class Counted : public hs::SampleSource {
 public:
  explicit Counted(int64_t count) : SampleSource({{1, 1, 1}, "counted", "counted", count, 10}) {}
  mutable std::atomic<int> reads = 0;

 private:
  void read_sample(int64_t index, uint8_t* image) const override { ++reads, *image = static_cast<uint8_t>(index); }
  int32_t sample_label(int64_t) const override { return 0; }
};

// The step at whose call of next() the toy asks for a batch: loads take no time, but for this one, and steps take 1.
int asked_at(int batch, size_t depth) {
  std::vector<double> load(static_cast<size_t>(batch) + 1, 0);
  load.back() = 1000;
  return static_cast<int>(end_of(load, 1, depth, 1) - 1 - load.back());
}

}  // namespace

TEST_CASE("toy: prefetching") {
  for (const int depth : {0, 1, 4}) {
    const Counted source(20);
    hs::Loader loader(source, {.batch = 1, .shuffle = false, .prefetch = depth, .workers = 0});
    for (int step = 0; step < 10; ++step) {
      CHECK(loader.next().samples.to_vector<int32_t>() == std::vector<int32_t>{step});
      CHECK(asked_at(source.reads - 1, static_cast<size_t>(depth)) <= step);
      CHECK(asked_at(source.reads, static_cast<size_t>(depth)) == step + 1);
    }
  }
  for (const int workers : {1, 2}) {
    const Counted source(50);
    hs::Loader loader(source, {.batch = 1, .shuffle = false, .prefetch = 2, .workers = workers});
    for (int step = 0; step < 40; ++step) {
      CHECK(loader.next().samples.to_vector<int32_t>() == std::vector<int32_t>{step});
      CHECK(source.reads >= step + 1);
      CHECK(source.reads <= step + 1 + 2);
    }
  }
  CHECK(main_of_prefetch(2, nullptr) == 0);
}
