// tests/exercise 05 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "docs/exercises/05/exercise.h"
#include "docs/exercises/vectors.h"

using exercise::LossScale;
using exercise::ScaleRule;
using exercise::unscale;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
const ScaleRule rule;

}  // namespace

TEST_CASE("finite gradients are divided by the scale") {
  std::vector<float> gradients = {65536, -32768, 0, 1.5f * 1024};
  LossScale state;
  REQUIRE(unscale(gradients, state, rule));
  CHECK(gradients == std::vector<float>{1, -0.5f, 0, 1.5f / 64});
  CHECK(state.scale == 65536);
  CHECK(state.finite == 1);
  CHECK(state.skipped == 0);
}

TEST_CASE("inf, -inf and NaN, anywhere, skip the step and halve the scale") {
  for (const float bad : {inf, -inf, std::nanf("")}) {
    for (size_t at = 0; at < 3; ++at) {
      INFO(bad, " at ", at);
      std::vector<float> gradients = {1, 2, 3};
      gradients[at] = bad;
      LossScale state{.finite = 7, .skipped = 2};
      REQUIRE_FALSE(unscale(gradients, state, rule));
      CHECK(state.scale == 32768);
      CHECK(state.finite == 0);
      CHECK(state.skipped == 3);
      for (size_t i = 0; i < 3; ++i) {
        if (i != at) CHECK(gradients[i] == static_cast<float>(i + 1));
      }
    }
  }
}

TEST_CASE("the scale that grows is that of the next step") {
  LossScale state{.scale = 4, .finite = 1};
  std::vector<float> gradients = {8};
  REQUIRE(unscale(gradients, state, {.growth_interval = 2}));
  CHECK(gradients[0] == 2);
  CHECK(state.scale == 8);
  CHECK(state.finite == 0);
}

TEST_CASE("the bounds") {
  LossScale low{.scale = 1}, high{.scale = 4};
  std::vector<float> bad = {inf}, zero = {0};
  CHECK_FALSE(unscale(bad, low, rule));
  CHECK(low.scale == 1);
  for (int step = 0; step < 10; ++step) CHECK(unscale(zero, high, {.largest = 16, .growth_interval = 1}));
  CHECK(high.scale == 16);
}

TEST_CASE("5,000 steps whose gradients overflow f16 from a scale of 2048 on") {
  LossScale state;
  int made = 0;
  for (int step = 0; step < 5000; ++step) {
    const float gradient = 40 * state.scale;
    std::vector<float> gradients = {0.25f * gradient, gradient > 65504 ? inf : gradient};
    if (!unscale(gradients, state, rule)) continue;
    ++made;
    CHECK(gradients[0] == 10);
    CHECK(gradients[1] == 40);
  }
  // 65536 is halved 6 times, to 1024. Each 2,000 finite steps later it is 2048 for one step, which is skipped.
  CHECK(state.scale == 1024);
  CHECK(state.skipped == 8);
  CHECK(made == 4992);
}
