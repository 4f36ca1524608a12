// tests/exercise 10 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "docs/exercises/10/exercise.h"

using exercise::Sample;
using exercise::State;

namespace {

// target = slope * x, with x between -1 and 1.
std::vector<Sample> line(int count, float slope) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const float x = static_cast<float>(i * 37 % 101 - 50) / 50;
    samples.push_back({x, slope * x});
  }
  return samples;
}

State train(const std::vector<Sample>& samples, int steps, float rate, int growth_interval, State state) {
  exercise::train(samples, steps, rate, growth_interval, state);
  return state;
}

}  // namespace

TEST_CASE("gradients below 2^-25: the scale carries them") {
  // dy is at most 3/16384 / 4096 = 4.5e-8 without a scale, and f16 has nothing between 0 and 6.0e-8.
  const State state = train(line(4096, 3.0f / 16384), 40, 1, 2000, {.scale = 65536});
  CHECK(state.weight * 16384 == doctest::Approx(3).epsilon(0.01));
  CHECK(state.skipped == 0);
}

TEST_CASE("updates below half an f16 step: the master weight carries them") {
  // An update is at most 0.01 * 0.04 * 0.34 = 1.4e-4, and f16's next number after 1 is 1.00098.
  const State state = train(line(256, 1.04f), 800, 0.01f, 2000, {.weight = 1, .scale = 1024});
  CHECK(state.weight == doctest::Approx(1.04f).epsilon(0.003));
  CHECK_MESSAGE(state.weight != exercise::f16(state.weight), "the weight itself has been rounded to f16");
}

TEST_CASE("the sum and the gradient that is unscaled are f32") {
  // 4096 terms of 1: a sum in f16 stays at 2048, where 1 is half a step.
  CHECK(train(std::vector<Sample>(4096, {1, -1}), 1, 0.5f, 2000, {.scale = 4096}).weight == -0.5f);
  const float tiny = std::ldexp(3.0f, -24);  // f16 has it, and not its half
  CHECK(train({{1, -tiny}, {1, 0}}, 1, 1, 2000, {.scale = 65536}).weight == -tiny / 2);
}

TEST_CASE("a scale that neither overflows nor underflows changes no bit") {
  const std::vector<Sample> samples = line(64, 0.75f);
  const State low = train(samples, 25, 0.5f, 2000, {.scale = 512}),
              high = train(samples, 25, 0.5f, 2000, {.scale = 4096});
  CHECK(low.weight == high.weight);
  CHECK(low.weight == doctest::Approx(0.75f).epsilon(0.2));
  CHECK(low.scale == 512);
  CHECK(low.finite == 25);
}

TEST_CASE("an overflow skips the step, and the scale comes down to one that works") {
  const std::vector<Sample> samples = line(1, -64);  // one sample, x = -1 and dL/dw = 64
  const State once = train(samples, 1, 0.5f, 2000, {.weight = 0.25f, .scale = 4096, .finite = 7});
  CHECK(once.weight == 0.25f);
  CHECK(once.scale == 2048);
  CHECK(once.skipped == 1);
  CHECK(once.finite == 0);
  // 64.25 * 1024 = 65792 is inf in f16 as well; 64.25 * 512 is not.
  const State later = train(samples, 30, 0.5f, 2000, {.weight = 0.25f, .scale = 4096});
  CHECK(later.skipped == 3);
  CHECK(later.scale == 512);
  CHECK(later.weight == doctest::Approx(-64).epsilon(1e-3));
}

TEST_CASE("the scale grows, after the step that has earned it, and stays within its bounds") {
  const std::vector<Sample> samples = line(2, 0);
  const State grown = train(samples, 7, 0.5f, 3, {.scale = 8, .finite = 0});
  CHECK(grown.scale == 32);
  CHECK(grown.finite == 1);
  CHECK(train(samples, 50, 0.5f, 1, {.scale = 8}).scale == 16777216);
  const State hopeless = train({{1, std::nanf("")}}, 30, 0.5f, 1, {.weight = 2, .scale = 8});
  CHECK(hopeless.scale == 1);
  CHECK(hopeless.weight == 2);
}

TEST_CASE("a step with one gradient that is not finite") {
  std::vector<float> weights = {1, 2, 3};
  State state{.scale = 8, .finite = 5};
  exercise::update(weights, std::vector<float>{8, INFINITY, 16}, 0.5f, 2000, state);
  CHECK_MESSAGE((weights == std::vector<float>{1, 2, 3}), "one gradient that is not finite: no weight moves");
  CHECK(state.scale == 4);
  exercise::update(weights, std::vector<float>{8, 4, 0}, 0.5f, 2000, state);
  CHECK((weights == std::vector<float>{0, 1.5f, 3}));
  CHECK(state.finite == 1);
}
