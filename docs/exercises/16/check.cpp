// tests/exercise 16 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>

#include "docs/exercises/16/exercise.h"

using exercise::Matrix;

namespace {

// Thirds, whose sums depend on the order.
Matrix matrix(int64_t rows, int64_t columns, int64_t factor) {
  Matrix result(rows, columns);
  for (int64_t i = 0; i < rows * columns; ++i) {
    result.store(i / columns, i % columns, static_cast<float>(i * factor % 101 - 50) / 3);
  }
  result.stores = 0;
  return result;
}

void check(int64_t m, int64_t n, int64_t k) {
  INFO("(", m, ", ", k, ") times (", k, ", ", n, ")");
  const Matrix a = matrix(m, k, 37), b = matrix(k, n, 23);
  Matrix c = matrix(m, n, 1);
  exercise::multiply(a, b, c);
  const int64_t loads_a = a.loads, loads_b = b.loads, loads_c = c.loads;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      INFO("element ", i, ", ", j);
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += a.load(i, p) * b.load(p, j);
      const float got = c.load(i, j);
      INFO("got ", got, ", expected ", sum, "; if only the last bit differs: added in another order, or fused");
      REQUIRE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(sum));
    }
  }
  REQUIRE_MESSAGE(c.stores == m * n, "stores of c");
  REQUIRE_MESSAGE(loads_c == 0, "loads of c");
  REQUIRE_MESSAGE(loads_a == m * k * ((n + 7) / 8), "loads of a");
  REQUIRE_MESSAGE(loads_b == k * n * ((m + 3) / 4), "loads of b");
}

}  // namespace

TEST_CASE("whole tiles") {
  check(4, 8, 1);
  check(4, 8, 16);
  check(16, 32, 5);
}

TEST_CASE("edges: all sizes up to two tiles and one") {
  for (int64_t m = 1; m <= 9; ++m) {
    for (int64_t n = 1; n <= 17; ++n) {
      for (const int64_t k : {1, 3}) check(m, n, k);
    }
  }
}

TEST_CASE("nothing to do, and nothing to add") {
  check(0, 8, 3);
  check(4, 0, 3);
  check(5, 9, 0);
}

TEST_CASE("64 x 64 x 64: 98,304 loads in place of 524,288") {
  const Matrix a = matrix(64, 64, 3), b = matrix(64, 64, 5);
  Matrix c(64, 64);
  exercise::multiply(a, b, c);
  CHECK(a.loads + b.loads == 64 * 64 * 8 + 64 * 64 * 16);
}
