// tests/exercise 09 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "docs/exercises/09/exercise.h"

using exercise::Activation;
using exercise::Stage;

namespace {

// Counts what a chain does. Stage i computes y = mask * sin(a x), with a mask of 0.5 or 1.5 that its key draws.
struct Chain {
  int live = 0, peak = 0, forwards = 0, wrong_keys = 0;
  std::vector<Stage> stages;

  Activation make(double value) {
    peak = std::max(peak, ++live);
    return {new double(value), [this](const double* p) {
              --live;
              delete p;
            }};
  }
  static double mask(int64_t key) { return key * 2654435761 % 64 < 32 ? 0.5 : 1.5; }

  explicit Chain(int64_t count, int64_t first_key) {
    for (int64_t i = 0; i < count; ++i) {
      const double a = 1 + 0.1 * static_cast<double>(i);
      stages.push_back({[this, a, expected = first_key + i](const Activation& x, int64_t key) {
                          ++forwards;
                          wrong_keys += key != expected;
                          return make(mask(key) * std::sin(a * *x));
                        },
                        [this, a, expected = first_key + i](const Activation& x, double dy, int64_t key) {
                          wrong_keys += key != expected;
                          return dy * mask(key) * a * std::cos(a * *x);
                        }});
    }
  }
};

// The same, with everything kept.
double expected_gradient(int64_t count, int64_t first_key, double x) {
  double dx = 1;
  for (int64_t i = 0; i < count; ++i) {
    const double a = 1 + 0.1 * static_cast<double>(i), mask = Chain::mask(first_key + i);
    dx *= mask * a * std::cos(a * x);
    x = mask * std::sin(a * x);
  }
  return dx * 2 * x;  // L = y^2
}

}  // namespace

TEST_CASE("the gradient, the number of forward runs and the peak, for all small chains") {
  for (int64_t count = 1; count <= 20; ++count) {
    for (int64_t length = 1; length <= count + 1; ++length) {
      INFO(count, " stages in segments of ", length);
      Chain chain(count, 100);
      const int64_t segments = (count + length - 1) / length;
      const double dx =
          exercise::gradient(chain.stages, chain.make(0.7), length, 100, [](const Activation& y) { return 2 * *y; });
      REQUIRE(dx == doctest::Approx(expected_gradient(count, 100, 0.7)).epsilon(1e-12));
      REQUIRE_MESSAGE(chain.forwards == count + count - segments, "stages run forward");
      REQUIRE_MESSAGE(chain.peak <= segments + std::min(length, count) + 1, "activations live at the same time");
      REQUIRE_MESSAGE(chain.wrong_keys == 0, "a stage drew other random numbers than its key's");
      REQUIRE_MESSAGE(chain.live == 0, "activations outlive the call");
    }
  }
}

TEST_CASE("between the passes only the segments' inputs and the output are live") {
  Chain chain(12, 5);
  int live = 0;
  exercise::gradient(chain.stages, chain.make(0.3), 4, 5, [&](const Activation& y) {
    live = chain.live;
    return 2 * *y;
  });
  CHECK(live <= 3 + 1);
}
