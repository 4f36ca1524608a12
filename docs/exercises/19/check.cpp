// tests/exercise 19 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "docs/exercises/19/exercise.h"

using exercise::rate;
using exercise::Schedule;

namespace {

const Schedule usual{.peak = 0.1, .floor = 0.001, .warmup = 9, .total = 109};

// Approx allows an error relative to 1 + the value; these rates are far smaller.
void check_rate(double found, double expected, double peak = 0.1) {
  INFO("the rate is ", found, ", expected ", expected);
  REQUIRE(std::abs(found - expected) <= 1e-12 * peak);
}

}  // namespace

TEST_CASE("warm-up: not 0 at its first step, and the peak after it") {
  check_rate(rate(usual, 0), 0.01);
  check_rate(rate(usual, 4), 0.05);
  check_rate(rate(usual, 8), 0.09);
  check_rate(rate(usual, 9), 0.1);
}

TEST_CASE("half a cosine, and the floor for ever after") {
  check_rate(rate(usual, 34), 0.001 + 0.099 * (1 + std::sqrt(0.5)) / 2);
  check_rate(rate(usual, 59), 0.0505);
  for (int64_t step = 10; step < 109; ++step) REQUIRE(rate(usual, step) < rate(usual, step - 1));
  for (const int64_t step : {109, 110, 100'000}) check_rate(rate(usual, step), 0.001);
}

TEST_CASE("resumed at any step, in any order") {
  std::vector<double> rates;
  for (int64_t step = 0; step < 120; ++step) rates.push_back(rate(usual, step));
  for (int64_t step = 120; step-- > 0;) REQUIRE(rate(usual, step) == rates[static_cast<size_t>(step)]);
}

TEST_CASE("no warm-up, nothing but warm-up, nothing at all") {
  check_rate(rate({0.1, 0, 0, 10}, 0), 0.1);
  check_rate(rate({0.1, 0, 0, 1}, 0), 0.1);
  check_rate(rate({0.1, 0.02, 10, 10}, 9), 1.0 / 11);
  check_rate(rate({0.1, 0.02, 10, 10}, 10), 0.02);
  check_rate(rate({0.1, 0.02, 20, 10}, 5), 0.6 / 21);
  check_rate(rate({0.1, 0.02, 20, 10}, 10), 0.02);
  check_rate(rate({0.1, 0.02, 0, 0}, 0), 0.02);
}

TEST_CASE("large numbers of steps") {
  const int64_t total = int64_t{1} << 40;
  check_rate(rate({1, 0, 0, total}, total / 2), 0.5, 1);
  check_rate(rate({1, 0, total, total + 2}, total - 2), static_cast<double>(total - 1) / static_cast<double>(total + 1),
             1);
  check_rate(rate({1, 0, total, total + 2}, total + 1), 0.5, 1);
}

TEST_CASE("micro-batches: one rate for an update, also for the short one that ends an epoch") {
  // 7 micro-batches, 3 to an update: 3 updates in each epoch.
  const std::vector<int64_t> updates = {0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6};
  for (size_t i = 0; i < updates.size(); ++i) {
    INFO("micro-batch ", i);
    check_rate(exercise::rate_of_micro_batch(usual, static_cast<int64_t>(i), 3, 7), rate(usual, updates[i]));
  }
}

TEST_CASE("a schedule in epochs counts updates") {
  const Schedule found = exercise::in_epochs(0.1, 0.001, 1.5, 4, 3, 7);
  CHECK(found.peak == 0.1);
  CHECK(found.floor == 0.001);
  CHECK(found.warmup == 5);  // 1.5 epochs of 3 updates: 4.5
  CHECK(found.total == 12);
  CHECK(exercise::in_epochs(0.1, 0.001, 0.4, 4, 3, 7).warmup == 2);  // 1.2
}
