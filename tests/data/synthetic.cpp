// Generated digits: the same on every machine.
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

}  // namespace
