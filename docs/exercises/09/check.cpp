// tests/exercise 09 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "docs/exercises/09/exercise.h"

using exercise::Activation;
using exercise::Stage;
using exercise::Values;

namespace {

// Counts what a chain does. Stage i computes y = mask * sin(a x), with a mask of 0.5 or 1.5 that its key draws.
struct Chain {
  int live = 0, peak = 0, forwards = 0, wrong_keys = 0;
  std::vector<Stage> stages;

  Activation make(double value) {
    peak = std::max(peak, ++live);
    return {new Values{value}, [this](const Values* p) {
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
                          return make(mask(key) * std::sin(a * x->front()));
                        },
                        [this, a, expected = first_key + i](const Activation& x, const Values& dy, int64_t key) {
                          wrong_keys += key != expected;
                          return Values{dy.front() * mask(key) * a * std::cos(a * x->front())};
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

// The most that is live if each activation goes when nothing will read it.
int64_t needed(int64_t count, int64_t length) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t kept = i / length + 1, in_segment = std::min(length, count - (kept - 1) * length);
    const int64_t forward = kept + (i % length > 0 ? 2 : 1);  // the output of stage i, and its input if it is not kept
    const int64_t backward = kept - 1 + in_segment;           // the inputs of all stages of its segment
    most = std::max({most, forward, backward});
  }
  return most;
}

}  // namespace

TEST_CASE("the gradient, the number of forward runs and the peak, for all small chains") {
  for (int64_t count = 1; count <= 20; ++count) {
    for (int64_t length = 1; length <= count + 1; ++length) {
      INFO(count, " stages in segments of ", length);
      Chain chain(count, 100);
      const int64_t segments = (count + length - 1) / length;
      const Values dx = exercise::gradient(chain.stages, chain.make(0.7), length, 100,
                                           [](const Activation& y) { return Values{2 * y->front()}; });
      REQUIRE_MESSAGE(chain.wrong_keys == 0, "a stage drew other random numbers than its key's");
      REQUIRE(dx.at(0) == doctest::Approx(expected_gradient(count, 100, 0.7)).epsilon(1e-12));
      REQUIRE_MESSAGE(chain.forwards == count + count - segments, "stages run forward");
      REQUIRE_MESSAGE(chain.peak <= needed(count, length),
                      "activations live at the same time: which variable still holds one?");
      REQUIRE_MESSAGE(chain.live == 0, "activations outlive the call");
    }
  }
}

TEST_CASE("between the passes only the segments' inputs and the output are live") {
  Chain chain(12, 5);
  int live = 0;
  exercise::gradient(chain.stages, chain.make(0.3), 4, 5, [&](const Activation& y) {
    live = chain.live;
    return Values{2 * y->front()};
  });
  CHECK(live <= 3 + 1);
}
