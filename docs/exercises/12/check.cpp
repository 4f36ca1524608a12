// tests/exercise 12 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "docs/exercises/12/exercise.h"

using exercise::Block;
using exercise::Row;

namespace {

constexpr float unread = std::numeric_limits<float>::quiet_NaN();
constexpr size_t d = 4;

struct Problem {
  std::vector<float> query, keys, values, doutput;
  std::vector<size_t> sizes, visible;  // of each block
};

float number(size_t i) { return static_cast<float>(i * 7919 % 1000) / 500 - 1; }

// Keys that are not visible, and their values, are NaN.
Problem problem(std::vector<size_t> sizes, std::vector<size_t> visible, float size_of_query = 1) {
  Problem p{{}, {}, {}, {}, std::move(sizes), std::move(visible)};
  for (size_t c = 0; c < d; ++c) {
    p.query.push_back(size_of_query * number(c + 3));
    p.doutput.push_back(number(c + 77));
  }
  for (size_t b = 0; b < p.sizes.size(); ++b) {
    for (size_t i = 0; i < p.sizes[b] * d; ++i) {
      const bool seen = i / d < p.visible[b];
      p.keys.push_back(seen ? number(31 * p.keys.size() + 5) : unread);
      p.values.push_back(seen ? number(17 * p.values.size() + 1) : unread);
    }
  }
  return p;
}

struct Exact {
  double log_sum = -std::numeric_limits<double>::infinity();
  std::vector<double> output = std::vector<double>(d), dquery = std::vector<double>(d), dkeys, dvalues;
};

// The textbook, in f64 and with all scores in memory.
Exact exact(const Problem& p) {
  Exact e;
  std::vector<double> scores;
  for (size_t b = 0; b < p.sizes.size(); ++b) {
    for (size_t j = 0; j < p.sizes[b]; ++j) {
      double s = 0;
      for (size_t c = 0; c < d; ++c) s += double{p.query[c]} * p.keys[scores.size() * d + c] / std::sqrt(double{d});
      scores.push_back(j < p.visible[b] ? s : -std::numeric_limits<double>::infinity());
    }
  }
  e.dkeys.resize(p.keys.size()), e.dvalues.resize(p.keys.size());
  const double largest = scores.empty() ? 0 : std::ranges::max(scores);
  if (scores.empty() || std::isinf(largest)) return e;
  double sum = 0, product = 0;
  for (const double s : scores) sum += std::exp(s - largest);
  e.log_sum = largest + std::log(sum);
  const auto visible = [&](size_t j) { return !std::isinf(scores[j]); };
  for (size_t j = 0; j < scores.size(); ++j) {
    for (size_t c = 0; visible(j) && c < d; ++c) e.output[c] += std::exp(scores[j] - e.log_sum) * p.values[j * d + c];
  }
  for (size_t c = 0; c < d; ++c) product += p.doutput[c] * e.output[c];
  for (size_t j = 0; j < scores.size(); ++j) {
    if (!visible(j)) continue;
    double dp = -product;
    for (size_t c = 0; c < d; ++c) dp += p.doutput[c] * double{p.values[j * d + c]};
    const double weight = std::exp(scores[j] - e.log_sum), ds = weight * dp / std::sqrt(double{d});
    for (size_t c = 0; c < d; ++c) {
      e.dvalues[j * d + c] = weight * p.doutput[c];
      e.dkeys[j * d + c] = ds * p.query[c];
      e.dquery[c] += ds * p.keys[j * d + c];
    }
  }
  return e;
}

// `size` is that of the factors whose products are added up. A gradient is far smaller where they cancel.
void check_close(const std::string& what, const std::vector<float>& found, const std::vector<double>& expected,
                 float size) {
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(what, "[", i, "] = ", found[i], ", expected ", expected[i]);
    REQUIRE(std::abs(found[i] - expected[i]) <= 1e-5 * size);
  }
}

void check(const Problem& p) {
  const Exact expected = exact(p);
  std::vector<float> keys, values, dquery(d), dkeys(p.keys.size(), 9), dvalues(p.keys.size(), 9);
  size_t asked = 0, at = 0;
  const auto load = [&](size_t b) {
    keys.assign(p.keys.begin() + static_cast<std::ptrdiff_t>(at * d),
                p.keys.begin() + static_cast<std::ptrdiff_t>((at + p.sizes[b]) * d));
    values.assign(p.values.begin() + static_cast<std::ptrdiff_t>(at * d),
                  p.values.begin() + static_cast<std::ptrdiff_t>((at + p.sizes[b]) * d));
    at += p.sizes[b];
    return Block{keys, values, p.visible[b]};
  };
  const Row row = exercise::forward(p.query, [&](Block& block) {
    if (asked >= p.sizes.size()) return false;
    block = load(asked++);
    return true;
  });
  CHECK(asked == p.sizes.size());
  REQUIRE(row.output.size() == d);
  check_close("output", row.output, expected.output, 1);
  if (std::isinf(expected.log_sum)) {
    CHECK(row.log_sum == static_cast<float>(expected.log_sum));
  } else {
    CHECK(row.log_sum == doctest::Approx(expected.log_sum).epsilon(1e-5));
  }
  at = 0;
  for (size_t b = 0; b < p.sizes.size(); ++b) {
    const size_t begin = at * d, count = p.sizes[b] * d;
    exercise::backward(p.query, load(b), row, p.doutput, dquery, std::span(dkeys).subspan(begin, count),
                       std::span(dvalues).subspan(begin, count));
  }
  check_close("dquery", dquery, expected.dquery, 1);
  check_close("dkeys", dkeys, expected.dkeys, std::max(1.0f, std::abs(std::ranges::max(p.query))));
  check_close("dvalues", dvalues, expected.dvalues, 1);
}

}  // namespace

TEST_CASE("one block, several, and blocks of one key") {
  check(problem({5}, {5}));
  check(problem({4, 4, 3}, {4, 4, 3}));
  check(problem({1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}));
}

TEST_CASE("scores of a size at which exp overflows") {
  for (const float size : {-300.0f, 300.0f, 1e6f}) {
    INFO("a query of size ", size);
    check(problem({4, 4, 3}, {4, 4, 3}, size));
  }
}

TEST_CASE("masked keys, also a whole first or last block") {
  check(problem({4, 4}, {2, 0}));
  check(problem({4, 4}, {0, 3}));
  check(problem({4, 4, 4}, {0, 0, 1}, 300));
}

TEST_CASE("nothing to see") {
  check(problem({4}, {0}));
  check(problem({}, {}));
}
