// tests/exercise 23 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "docs/exercises/23/exercise.h"

using exercise::Signal;

struct exercise::Check {
  static Number number(float value) { return Number(value); }
  static double value(const Number& x) { return double{x.value_}; }
  static int64_t take_products() { return std::exchange(Number::products, 0); }
  static int64_t take_additions() { return std::exchange(Number::additions, 0); }
};
using exercise::Check;

namespace {

Signal signal(const std::vector<float>& values) {
  Signal result;
  for (const float value : values) result.push_back(Check::number(value));
  return result;
}

std::vector<Signal> random_signals(size_t count, size_t size) {
  static uint32_t state = 1;
  std::vector<Signal> signals(count);
  for (Signal& one : signals) {
    for (size_t i = 0; i < size; ++i) {
      state = state * 1664525 + 1013904223;
      one.push_back(Check::number(static_cast<float>(state >> 8) / (1 << 23) - 1));
    }
  }
  return signals;
}

struct Cost {
  double products, additions, error;  // its mean square, summed over results
};

struct Costs {
  Cost answer, plain;  // plain: the definition's
};

// For random numbers. Requires that the answer is right.
Costs costs(size_t filters, size_t channels, size_t n) {
  INFO(n, " results, ", channels, " channels, ", filters, " filters");
  const std::vector<Signal> d = random_signals(channels, n + 2);
  std::vector<std::vector<Signal>> g;
  while (g.size() < filters) g.push_back(random_signals(channels, 3));
  Check::take_products();
  Check::take_additions();
  const std::vector<Signal> y = exercise::filter(d, g);
  Cost answer{static_cast<double>(Check::take_products()), static_cast<double>(Check::take_additions()), 0};
  REQUIRE_MESSAGE(y.size() == filters, "one signal for each filter");
  double plain_error = 0;
  for (size_t k = 0; k < filters; ++k) {
    REQUIRE_MESSAGE(y[k].size() == n, "a signal has as many results as d has elements, less 2");
    for (size_t i = 0; i < n; ++i) {
      double exact = 0;
      exercise::Number plain;
      for (size_t c = 0; c < channels; ++c) {
        for (size_t j = 0; j < 3; ++j) {
          plain += g[k][c][j] * d[c][i + j];
          exact += Check::value(g[k][c][j]) * Check::value(d[c][i + j]);
        }
      }
      const double got = Check::value(y[k][i]);
      INFO("y[", k, "][", i, "] is ", got, ", expected ", exact);
      REQUIRE(std::abs(got - exact) <= 1e-4);
      answer.error += std::pow(got - exact, 2);
      plain_error += std::pow(Check::value(plain) - exact, 2);
    }
  }
  return {answer,
          {static_cast<double>(Check::take_products()), static_cast<double>(Check::take_additions()), plain_error}};
}

}  // namespace

TEST_CASE("four results by hand: the first tap meets the first element") {
  const std::vector<Signal> y = exercise::filter({signal({1, 2, 3, 4, 5, 6})}, {{signal({1, 10, 100})}});
  REQUIRE(y.size() == 1);
  REQUIRE(y[0].size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(Check::value(y[0][i]) == doctest::Approx(321 + 111 * static_cast<double>(i)));
}

TEST_CASE("F(2, 3) at least: four products for two results") {
  const Costs cost = costs(3, 2, 32);
  INFO(cost.answer.products, " products, the definition has ", cost.plain.products);
  CHECK(cost.answer.products <= cost.plain.products * 2 / 3);
}

TEST_CASE("F(4, 3): six products for four results, and for what is left of four") {
  for (size_t n = 0; n <= 13; ++n) {
    for (const size_t channels : {1, 3}) {
      const Costs cost = costs(2, channels, n);
      const size_t most = 2 * channels * 6 * ((n + 3) / 4);
      INFO(cost.answer.products, " products, at most ", most, "; results: ", n, ", channels: ", channels,
           ", filters: 2");
      REQUIRE(cost.answer.products <= static_cast<double>(most));
    }
  }
}

TEST_CASE("64 results of 16 filters of 16 channels: additions and errors") {
  const Costs cost = costs(16, 16, 64);
  const double error = std::sqrt(cost.answer.error / cost.plain.error);
  std::printf("score: %.3f products, %.3f additions and %.1f times the error for one of the definition\n",
              cost.answer.products / cost.plain.products, cost.answer.additions / cost.plain.additions, error);
  CHECK_MESSAGE(cost.answer.additions < cost.plain.additions,
                "no fewer additions than the definition: what is transformed too often?");
  CHECK_MESSAGE(error <= 8, "the errors are more than 8 times those of the definition: too many points, or too large");
}
