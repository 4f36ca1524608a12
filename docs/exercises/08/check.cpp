// tests/exercise 08 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "docs/exercises/08/exercise.h"
#include "docs/exercises/vectors.h"
#include "engine/random.h"

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

struct Rows {
  std::vector<float> logits;
  std::vector<int32_t> labels;
  int64_t count() const { return std::ssize(labels); }
  int64_t classes() const { return std::ssize(logits) / count(); }
};

std::vector<float> gradients_of(const Rows& rows, float dloss) {
  std::vector<float> gradients(rows.logits.size(), 7);
  exercise::cross_entropy_backward(rows.logits.data(), rows.labels.data(), rows.count(), rows.classes(), dloss,
                                   gradients.data());
  return gradients;
}

// In f64, the label's without cancellation.
std::vector<double> exact(const Rows& rows, double dloss) {
  std::vector<double> gradients;
  for (int64_t row = 0; row < rows.count(); ++row) {
    const float* z = rows.logits.data() + row * rows.classes();
    const double largest = *std::max_element(z, z + rows.classes());
    double others = 0, sum = 0;
    for (int64_t j = 0; j < rows.classes(); ++j) {
      const double e = std::exp(z[j] - largest);
      sum += e;
      if (j != rows.labels[static_cast<size_t>(row)]) others += e;
    }
    for (int64_t j = 0; j < rows.classes(); ++j) {
      const bool is_label = j == rows.labels[static_cast<size_t>(row)];
      const double p = is_label ? -others / sum : std::exp(z[j] - largest) / sum;
      gradients.push_back(p * dloss / static_cast<double>(rows.count()));
    }
  }
  return gradients;
}

void check_rows(const Rows& rows, float dloss) {
  const std::vector<float> found = gradients_of(rows, dloss);
  const std::vector<double> expected = exact(rows, dloss);
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("row ", i / static_cast<size_t>(rows.classes()), ", class ", i % static_cast<size_t>(rows.classes()), ": ",
         found[i], ", expected ", expected[i]);
    CHECK(std::abs(found[i] - expected[i]) <= 1e-5 * std::abs(expected[i]) + 1e-30);
  }
}

// Logits between -spread and spread, around `middle`.
Rows random_rows(int64_t count, int64_t classes, float spread, float middle) {
  const hs::RandomStream stream{.seed = 8, .purpose = hs::RandomPurpose::synthetic};
  Rows rows;
  for (int64_t i = 0; i < count * classes; ++i) {
    const float unit = hs::to_unit_float(hs::random_bits(stream, static_cast<uint64_t>(i)));
    rows.logits.push_back(middle + spread * (2 * unit - 1));
  }
  for (int64_t i = 0; i < count; ++i) rows.labels.push_back(static_cast<int32_t>(i * 3 % classes));
  return rows;
}

}  // namespace

TEST_CASE("ordinary logits, with a loss scale and without") {
  for (const float dloss : {1.0f, 65536.0f, -0.25f}) check_rows(random_rows(9, 10, 4, 0), dloss);
  check_rows(random_rows(1, 1, 4, 0), 1);
}

TEST_CASE("large logits, of either sign") {
  for (const float middle : {100.0f, -200.0f, 30000.0f}) {
    INFO("around ", middle);
    check_rows(random_rows(9, 10, 20, middle), 1);
  }
  check_rows({.logits = {3e38f, -3e38f, 0, -3e38f, -3e38f, -3e38f}, .labels = {0, 2}}, 1);
}

TEST_CASE("the label leads: its gradient is small and not zero") {
  for (const float lead : {5.0f, 17.0f, 30.0f}) check_rows({.logits = {lead, 0, 0, 1}, .labels = {0}}, 1);
}

TEST_CASE("a class of -inf") {
  const std::vector<float> found = gradients_of({.logits = {1, -inf, 2}, .labels = {0}}, 1);
  CHECK(found[1] == 0);
  CHECK(found[0] == doctest::Approx(-found[2]));
  CHECK(found[2] == doctest::Approx(0.731059).epsilon(1e-5));
}

TEST_CASE("NaN stays NaN, in its row") {
  for (size_t at = 0; at < 3; ++at) {
    Rows rows{.logits = {1, 2, 3, 1, 2, 3}, .labels = {0, 1}};
    rows.logits[at] = std::nanf("");
    const std::vector<float> found = gradients_of(rows, 1);
    for (size_t i = 0; i < 3; ++i) CHECK(std::isnan(found[i]));
    for (size_t i = 3; i < 6; ++i) CHECK(std::isfinite(found[i]));
  }
}

TEST_CASE("in place") {
  Rows rows = random_rows(9, 10, 4, 0);
  const std::vector<float> expected = gradients_of(rows, 2);
  exercise::cross_entropy_backward(rows.logits.data(), rows.labels.data(), 9, 10, 2, rows.logits.data());
  CHECK(rows.logits == expected);
}
