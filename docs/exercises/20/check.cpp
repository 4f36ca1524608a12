// tests/exercise 20 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "docs/exercises/20/exercise.h"

using exercise::Output;
using exercise::Plan;

namespace {

// The peak and the cost of a plan, by the rules of the header.
Plan measured(const std::vector<Output>& outputs, const std::vector<bool>& keep) {
  Plan plan{keep, 0, 0};
  int64_t kept = 0, run = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    run = keep[i] ? 0 : run + outputs[i].bytes;
    kept += keep[i] ? outputs[i].bytes : 0;
    plan.cost += keep[i] ? 0 : outputs[i].cost;
    plan.peak = std::max(plan.peak, kept + run);
  }
  return plan;
}

std::vector<Output> chain(size_t count, int64_t seed) {
  std::vector<Output> outputs;
  for (size_t i = 0; i < count; ++i) {
    const int64_t number = (static_cast<int64_t>(i) + 1) * 7919 + seed * 104729;
    outputs.push_back({1 + number % 9, number / 9 % 12});
  }
  return outputs;
}

// Checks that the plan is what it says and fits, and returns its cost.
int64_t check(const std::vector<Output>& outputs, const std::optional<Plan>& plan, int64_t budget) {
  REQUIRE(plan.has_value());
  REQUIRE(plan->keep.size() == outputs.size());
  const Plan real = measured(outputs, plan->keep);
  REQUIRE_MESSAGE(real.peak <= budget, "the plan needs ", real.peak, " bytes");
  REQUIRE_MESSAGE(plan->peak == real.peak, "the peak that the plan states");
  REQUIRE_MESSAGE(plan->cost == real.cost, "the cost that the plan states");
  return real.cost;
}

}  // namespace

TEST_CASE("as good as the best of all plans") {
  for (size_t count = 1; count <= 9; ++count) {
    for (int64_t seed = 0; seed < 4; ++seed) {
      const std::vector<Output> outputs = chain(count, seed);
      for (int64_t budget = 0; budget <= 50; ++budget) {
        int64_t best = std::numeric_limits<int64_t>::max();
        for (unsigned bits = 0; bits < 1u << count; ++bits) {
          std::vector<bool> keep;
          for (size_t i = 0; i < count; ++i) keep.push_back(bits >> i & 1);
          if (const Plan plan = measured(outputs, keep); plan.peak <= budget) best = std::min(best, plan.cost);
        }
        INFO(count, " outputs, seed ", seed, ", budget ", budget);
        const auto plan = exercise::best_plan(outputs, budget);
        if (best == std::numeric_limits<int64_t>::max()) {
          REQUIRE_MESSAGE(!plan.has_value(), "no plan fits");
        } else {
          const int64_t cost = check(outputs, plan, budget);
          REQUIRE(cost == best);
        }
      }
    }
  }
}

TEST_CASE("equal stages: runs of 15, 14, 13, ... 1 outputs, and one kept after each") {
  const std::vector<Output> outputs(15 * 16 / 2 + 15, {1, 1});
  const int64_t cost = check(outputs, exercise::best_plan(outputs, 15), 15);
  CHECK(cost == 15 * 16 / 2);
  const std::vector<Output> one_more(outputs.size() + 1, {1, 1});
  CHECK_FALSE(exercise::best_plan(one_more, 15).has_value());
}

TEST_CASE("nothing to plan, and a budget for everything") {
  const int64_t nothing = check({}, exercise::best_plan({}, 0), 0);
  CHECK(nothing == 0);
  const int64_t everything = check(chain(20, 1), exercise::best_plan(chain(20, 1), 1000), 1000);
  CHECK(everything == 0);
}

TEST_CASE("a long chain, in time") {
  std::vector<Output> outputs = chain(200, 2);
  for (Output& output : outputs) output.bytes *= 10;
  const auto begin = std::chrono::steady_clock::now();
  const auto plan = exercise::best_plan(outputs, 2000);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  check(outputs, plan, 2000);
  CHECK_MESSAGE(seconds < 10, "seconds: ", seconds);  // ten times the limit: the machine may be busy
}
