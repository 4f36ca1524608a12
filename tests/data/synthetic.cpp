// Generated digits: the same on every machine, and neither too easy nor too hard.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "data/synthetic.h"

namespace {

using namespace hs;

uint64_t fnv1a(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

TEST_CASE("generated digits are the same on every machine and depend on seed and index alone") {
  const MemorySource set = synthetic_digits(synthetic_train_seed, 1000);
  CHECK(fnv1a(set.images()) == 0x3a28c341d8c8a56e);  // GCC 12 and Clang 14, -O0 to -O3 -march=native
  CHECK(std::vector(set.labels().begin(), set.labels().begin() + 8) == std::vector<int32_t>{5, 9, 6, 7, 9, 8, 6, 7});

  std::vector<uint8_t> one(784);
  CHECK(synthetic_digit(synthetic_train_seed, 737, one) == set.labels()[737]);
  CHECK(std::equal(one.begin(), one.end(), set.images().begin() + 737 * 784));
  CHECK(synthetic_digits(synthetic_test_seed, 1000).images() != set.images());
}

TEST_CASE("generated digits can be told apart, but not by a template") {
  const MemorySource train = synthetic_digits(synthetic_train_seed, 4000);
  const MemorySource test = synthetic_digits(synthetic_test_seed, 1000);
  std::vector<double> mean(10 * 784);
  std::vector<int> count(10);
  for (size_t i = 0; i < 4000; ++i) {
    const auto digit = static_cast<size_t>(train.labels()[i]);
    ++count[digit];
    for (size_t p = 0; p < 784; ++p) mean[digit * 784 + p] += train.images()[i * 784 + p];
  }
  for (size_t digit = 0; digit < 10; ++digit) {
    CHECK(count[digit] > 300);
    CHECK(count[digit] < 500);
    for (size_t p = 0; p < 784; ++p) mean[digit * 784 + p] /= count[digit];
  }
  int right = 0;
  for (size_t i = 0; i < 1000; ++i) {
    std::vector<double> distance(10);
    for (size_t j = 0; j < 10 * 784; ++j) {
      const double apart = test.images()[i * 784 + j % 784] - mean[j];
      distance[j / 784] += apart * apart;
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == test.labels()[i];
  }
  MESSAGE("nearest class mean: " << right << " of 1000");
  CHECK(right > 600);
  CHECK(right < 950);
}

}  // namespace
