// Exercise 11, of docs/chapters/07_gradient_accumulation.md: the gradient of a step whose micro-batches differ in size,
// whose samples have weights, and whose end is not known in advance. Edit exercise.cpp beside this file, then run
// tests/exercise 11.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace exercise {

// The loss of a step is the weighted mean over all of its samples, L = sum_i w_i l_i / sum_i w_i. Padding has weight 0.
class Accumulator {
 public:
  // max_norm: the length to which the gradient of a whole step is shortened if it is longer.
  Accumulator(size_t parameters, double max_norm) : sum_(parameters), max_norm_(max_norm) {}

  // Adds a micro-batch. `gradient` is that of its own weighted mean, and `weight` the sum of its samples' weights, >=
  // 0. A micro-batch of weight 0 is all padding: its mean is 0/0, so its gradient may hold NaN, and it must not count.
  void add(std::span<const float> gradient, double weight);

  // The clipped gradient of L over everything added since the last call, or nothing if that has weight 0: then there is
  // no step to make. Afterwards the accumulator is empty. Within 1e-6 of the exact value, relative to the largest one,
  // after 100,000 micro-batches. A gradient with inf or NaN is returned unclipped: the loss scale has to see it.
  std::optional<std::vector<float>> finish();

 private:
  std::vector<double> sum_;
  double max_norm_;
  double weight_ = 0;
};

}  // namespace exercise
