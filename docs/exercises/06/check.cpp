// tests/exercise 06 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "docs/exercises/06/exercise.h"
#include "docs/exercises/vectors.h"

namespace {

// The gradient of sample i, an integer, so that every sum below is exact.
double gradient(int64_t sample) { return static_cast<double>(sample * 37 % 64) - 20; }

double mean_gradient(int64_t begin, int64_t size) {
  double sum = 0;
  for (int64_t i = begin; i < begin + size; ++i) sum += gradient(i);
  return size == 0 ? 0 : sum / static_cast<double>(size);
}

void check_sum(const std::vector<int64_t>& sizes) {
  const std::vector<float> factors = exercise::weights(sizes);
  CAPTURE(sizes);
  REQUIRE(factors.size() == sizes.size());
  int64_t begin = 0;
  double sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sum += static_cast<double>(factors[i]) * mean_gradient(begin, sizes[i]);
    begin += sizes[i];
  }
  CHECK(sum == doctest::Approx(mean_gradient(0, begin)).epsilon(1e-5));
}

}  // namespace

TEST_CASE("the sum is the gradient of one batch") {
  check_sum({8});
  check_sum({4, 4});
  check_sum({4, 1});
  check_sum({1, 4, 2});
  check_sum({64, 64, 64, 33});
  check_sum({5, 0, 3});
}

TEST_CASE("powers of two: the factors are exact") {
  CHECK(exercise::weights(std::vector<int64_t>{4, 2, 2}) == std::vector<float>{0.5f, 0.25f, 0.25f});
  CHECK(exercise::weights(std::vector<int64_t>{0, 7}) == std::vector<float>{0, 1});
}

TEST_CASE("an epoch, also one that ends in the middle of a step") {
  using Steps = std::vector<std::vector<int64_t>>;
  CHECK(exercise::steps(12, 3, 2) == Steps{{3, 3}, {3, 3}});
  CHECK(exercise::steps(14, 3, 2) == Steps{{3, 3}, {3, 3}, {2}});
  CHECK(exercise::steps(16, 3, 2) == Steps{{3, 3}, {3, 3}, {3, 1}});
  CHECK(exercise::steps(2, 3, 4) == Steps{{2}});
  CHECK(exercise::steps(0, 3, 4) == Steps{});
}

TEST_CASE("every sample once, for all small epochs") {
  for (int64_t samples = 0; samples <= 40; ++samples) {
    for (int64_t batch = 1; batch <= 6; ++batch) {
      for (int64_t accumulate = 1; accumulate <= 4; ++accumulate) {
        INFO(samples, " samples, batch ", batch, ", accumulate ", accumulate);
        int64_t seen = 0;
        for (const auto& sizes : exercise::steps(samples, batch, accumulate)) {
          CHECK(!sizes.empty());
          CHECK(std::ranges::all_of(sizes, [&](int64_t size) { return 0 < size && size <= batch; }));
          seen += std::reduce(sizes.begin(), sizes.end());
        }
        CHECK(seen == samples);
      }
    }
  }
}
