// tests/exercise 18 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>

#include "docs/exercises/18/exercise.h"

using exercise::Lora;
using exercise::Matrix;

namespace {

constexpr size_t n = 5, in = 7, out = 6, r = 2;

Matrix matrix(size_t rows, size_t columns, size_t seed) {
  Matrix result{rows, columns};
  for (size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] = static_cast<double>((i * 7919 + seed * 104729) % 201) / 100 - 1;
  }
  return result;
}

Lora layer() { return {matrix(in, out, 1), matrix(r, in, 2), matrix(out, r, 3), 6}; }

double forward_value(const Lora& lora, const Matrix& x, size_t row, size_t column) {
  double y = 0;
  for (size_t i = 0; i < in; ++i) {
    double weight = 0;
    for (size_t k = 0; k < r; ++k) weight += lora.b.at(column, k) * lora.a.at(k, i);
    y += x.at(row, i) * (lora.w.at(i, column) + lora.alpha / r * weight);
  }
  return y;
}

// Compares a gradient with differences of L = sum of y * dy, which is linear in each single number.
void check_gradient(const std::string& name, const Matrix& found, Matrix& variable,
                    const std::function<double()>& loss) {
  REQUIRE(found.rows == variable.rows);
  REQUIRE(found.columns == variable.columns);
  for (size_t i = 0; i < found.values.size(); ++i) {
    const double kept = variable.values[i];
    variable.values[i] = kept + 1;
    const double above = loss();
    variable.values[i] = kept - 1;
    const double slope = (above - loss()) / 2;
    variable.values[i] = kept;
    INFO(name, ", element ", i, ": ", found.values[i], ", expected ", slope);
    REQUIRE(std::abs(found.values[i] - slope) < 1e-9);
  }
}

}  // namespace

TEST_CASE("forward, and its number of multiplications") {
  const Lora lora = layer();
  const Matrix x = matrix(n, in, 4);
  Matrix down;
  exercise::multiplications = 0;
  const Matrix y = exercise::forward(lora, x, down);
  CHECK_MESSAGE(exercise::multiplications <= static_cast<long long>(n * in * out + n * r * (in + out)),
                "multiplications");
  REQUIRE(y.rows == n);
  REQUIRE(y.columns == out);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < out; ++j)
      REQUIRE(y.at(i, j) == doctest::Approx(forward_value(lora, x, i, j)).epsilon(1e-12));
  }
}

TEST_CASE("with B = 0 the output has the bits of W alone") {
  Lora lora = layer();
  lora.b = Matrix{out, r};
  const Matrix x = matrix(n, in, 4);
  Matrix down;
  CHECK(exercise::forward(lora, x, down) == exercise::product(x, lora.w));
}

TEST_CASE("backward, and its number of multiplications") {
  Lora lora = layer();
  Matrix x = matrix(n, in, 4), down;
  const Matrix dy = matrix(n, out, 5);
  exercise::forward(lora, x, down);
  exercise::multiplications = 0;
  const auto [da, db, dx] = exercise::backward(lora, x, down, dy);
  CHECK_MESSAGE(exercise::multiplications <= static_cast<long long>(n * in * out + 2 * n * r * (in + out)),
                "multiplications");
  const auto loss = [&] {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < out; ++j) sum += forward_value(lora, x, i, j) * dy.at(i, j);
    }
    return sum;
  };
  check_gradient("dA", da, lora.a, loss);
  check_gradient("dB", db, lora.b, loss);
  check_gradient("dx", dx, x, loss);
}

TEST_CASE("merged: the same output from one product") {
  const Lora lora = layer();
  const Matrix x = matrix(n, in, 4), w = exercise::merged(lora);
  REQUIRE(w.rows == in);
  REQUIRE(w.columns == out);
  const Matrix y = exercise::product(x, w);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < out; ++j)
      REQUIRE(y.at(i, j) == doctest::Approx(forward_value(lora, x, i, j)).epsilon(1e-12));
  }
}
