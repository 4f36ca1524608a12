// tests/exercise 11 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "docs/exercises/11/exercise.h"
#include "docs/exercises/vectors.h"

using exercise::Accumulator;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr double no_clipping = 1e30;

struct Sample {
  float gradient[2];
  double weight;
};

std::vector<Sample> some_samples(int count) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const auto a = static_cast<float>(i * 37 % 64 - 20), b = static_cast<float>(i * 11 % 32) / 8;
    samples.push_back({{a, b}, i % 5 == 3 ? 0.0 : 1.0 + i % 3});
  }
  return samples;
}

// Adds samples[begin, end) as one micro-batch.
void add(Accumulator& accumulator, const std::vector<Sample>& samples, size_t begin, size_t end) {
  double sum[2] = {}, weight = 0;
  for (size_t i = begin; i < end; ++i) {
    for (int j = 0; j < 2; ++j) sum[j] += samples[i].gradient[j] * samples[i].weight;
    weight += samples[i].weight;
  }
  accumulator.add(std::vector<float>{static_cast<float>(sum[0] / weight), static_cast<float>(sum[1] / weight)}, weight);
}

}  // namespace

TEST_CASE("any partition gives the gradient of one batch, also with a ragged tail") {
  const std::vector<Sample> samples = some_samples(23);
  Accumulator whole(2, no_clipping);
  add(whole, samples, 0, 23);
  const auto expected = whole.finish();
  REQUIRE(expected.has_value());
  for (size_t size = 1; size <= 22; ++size) {
    INFO("micro-batches of ", size);
    Accumulator parts(2, no_clipping);
    for (size_t begin = 0; begin < 23; begin += size) add(parts, samples, begin, std::min<size_t>(begin + size, 23));
    const auto found = parts.finish();
    REQUIRE(found.has_value());
    for (size_t j = 0; j < 2; ++j) CHECK(found->at(j) == doctest::Approx(expected->at(j)).epsilon(1e-5));
  }
}

TEST_CASE("padding does not count, whatever its gradient") {
  Accumulator accumulator(2, no_clipping);
  accumulator.add(std::vector<float>{not_a_number, not_a_number}, 0);
  accumulator.add(std::vector<float>{3, -4}, 0.5);
  accumulator.add(std::vector<float>{100, 100}, 0);
  CHECK(accumulator.finish() == std::vector<float>{3, -4});
  accumulator.add(std::vector<float>{not_a_number, 0}, 0);
  CHECK_MESSAGE(!accumulator.finish().has_value(), "a step of padding alone");
  CHECK_MESSAGE(!accumulator.finish().has_value(), "a step of nothing");
}

TEST_CASE("each step begins empty") {
  Accumulator accumulator(1, no_clipping);
  for (const float value : {1.0f, 5.0f, -2.0f}) {
    accumulator.add(std::vector<float>{value}, 2);
    accumulator.add(std::vector<float>{value}, 1);
    CHECK(accumulator.finish() == std::vector<float>{value});
  }
}

TEST_CASE("the sum is clipped, not its parts") {
  Accumulator accumulator(2, 5);
  accumulator.add(std::vector<float>{60, 0}, 1);
  accumulator.add(std::vector<float>{-54, 8}, 1);
  CHECK(accumulator.finish() == std::vector<float>{3, 4});
  accumulator.add(std::vector<float>{30, 40}, 1);
  const auto clipped = accumulator.finish();
  REQUIRE(clipped.has_value());
  CHECK(clipped->at(0) == doctest::Approx(3));
  CHECK(clipped->at(1) == doctest::Approx(4));
  accumulator.add(std::vector<float>{std::numeric_limits<float>::infinity(), 1}, 1);
  CHECK(accumulator.finish() == std::vector<float>{std::numeric_limits<float>::infinity(), 1});
}

TEST_CASE("100,000 micro-batches") {
  Accumulator accumulator(1, no_clipping);
  for (int i = 0; i < 100'000; ++i) accumulator.add(std::vector<float>{i % 2 == 0 ? 0.1f : 0.3f}, 1 + i % 2);
  const auto found = accumulator.finish();
  REQUIRE(found.has_value());
  CHECK(found->at(0) == doctest::Approx(0.7 / 3).epsilon(1e-6));
}
