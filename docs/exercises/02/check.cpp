// tests/exercise 02 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "docs/exercises/02/exercise.h"
#include "engine/random.h"

namespace {

std::vector<float> numbers(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  const hs::RandomStream stream{.seed = 2, .purpose = hs::RandomPurpose::synthetic};
  for (size_t i = 0; i < values.size(); ++i) values[i] = hs::to_unit_float(hs::random_bits(stream, i));
  return values;
}

}  // namespace

TEST_CASE("the same bits on any number of threads") {
  for (const int64_t size : {0, 1, 2, 7, 4095, 4097, 100'003}) {
    const std::vector<float> values = numbers(size);
    const float one = exercise::parallel_sum(values.data(), size, 1);
    for (int threads = 2; threads <= 9; ++threads) {
      INFO(size, " values, ", threads, " threads");
      CHECK(std::bit_cast<uint32_t>(exercise::parallel_sum(values.data(), size, threads)) ==
            std::bit_cast<uint32_t>(one));
    }
  }
}

TEST_CASE("every value is added once") {
  for (const int64_t size : {0, 1, 2, 7, 4095, 4097, 100'003}) {
    const std::vector<float> ones(static_cast<size_t>(size), 1.0f);
    INFO(size, " ones");
    CHECK(exercise::parallel_sum(ones.data(), size, 3) == static_cast<float>(size));
  }
}

TEST_CASE("20 million values: within 1e-5 of the exact sum") {
  const std::vector<float> values = numbers(20'000'000);
  const double exact = std::accumulate(values.begin(), values.end(), 0.0);
  const double sum = exercise::parallel_sum(values.data(), static_cast<int64_t>(values.size()), 4);
  CHECK(std::abs(sum - exact) < 1e-5 * exact);
}
