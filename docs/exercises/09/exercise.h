// Exercise 9, of docs/chapters/08_activation_checkpointing.md: the backward pass of a chain of stages that keeps few
// activations and computes the others again. Edit exercise.cpp beside this file, then run tests/exercise 09.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace exercise {

using Values = std::vector<double>;
using Activation = std::shared_ptr<const Values>;  // lives until its last owner is destroyed

// y = f(x). `key` selects the random numbers of a stage with dropout: the same key draws the same mask.
struct Stage {
  std::function<Activation(const Activation& x, int64_t key)> forward;
  std::function<Values(const Activation& x, const Values& dy, int64_t key)>
      backward;  // dL/dx of this x, drawn by this key
};

// Runs x through all stages, and returns dL/dx, where loss_gradient(y) is dL/dy of the last stage's output y.
//
// The chain is cut into segments of `length` stages; the last one may be shorter. The first forward pass keeps the
// input of each segment and, while it runs a stage, the input and the output of that stage: nothing else. Backward
// takes the segments from the last to the first. It runs the stages of a segment again, except its last, whose output
// no backward needs, then their backward functions, and drops each activation as soon as nothing will read it.
//
//   stages run forward:   n + (n - segments)
//   live at a time:       at most segments + max(2, length - 1) activations, x and y included, and never more than
//                         these rules need
//   keys:                 stage i always gets first_key + i
//
// REQUIRES: stages is not empty, length > 0
Values gradient(std::span<const Stage> stages, const Activation& x, int64_t length, int64_t first_key,
                const std::function<Values(const Activation& y)>& loss_gradient);

}  // namespace exercise
