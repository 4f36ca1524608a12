// Exercise 20, of docs/chapters/08_activation_checkpointing.md: which activations to keep under a budget, so that
// computing the others again takes the least time. Edit exercise.cpp beside this file, then run tests/exercise 20.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace exercise {

// The output of a stage of a chain, which backward needs.
struct Output {
  int64_t bytes;  // > 0
  int64_t cost;   // of computing it from the output before it; >= 0
};

struct Plan {
  std::vector<bool> keep;  // of each output, whether forward keeps it
  int64_t peak, cost;      // of this plan, by the rules below
};

// The cost of a plan is the sum of the costs of the outputs that are not kept. Its peak is the largest of
//   - all kept outputs: they are live when forward ends;
//   - for each longest run of consecutive outputs that are not kept: the run itself, which is computed again as a whole
//     right before its backward, and the kept outputs before it. Those after it have been freed by then.
// The input of the chain does not count, and neither does what forward drops at once.
//
// Returns a plan of the least cost among those with peak <= budget, or nothing if there is none. 200 outputs and a
// budget of 2,000 take less than a second. REQUIRES: budget >= 0
std::optional<Plan> best_plan(std::span<const Output> outputs, int64_t budget);

}  // namespace exercise
