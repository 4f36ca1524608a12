// The starter: a mean of means, each of them clipped. Change it until tests/exercise 11 is content.
#include "docs/exercises/11/exercise.h"

#include <cmath>

namespace exercise {

void Accumulator::add(std::span<const float> gradient, double /*weight*/) {
  double squares = 0;
  for (const float value : gradient) squares += value * value;
  const double factor = std::sqrt(squares) > max_norm_ ? max_norm_ / std::sqrt(squares) : 1;
  for (size_t i = 0; i < gradient.size(); ++i) sum_[i] += gradient[i] * factor;
  weight_ += 1;
}

std::optional<std::vector<float>> Accumulator::finish() {
  std::vector<float> result;
  for (const double value : sum_) result.push_back(static_cast<float>(value / weight_));
  return result;
}

}  // namespace exercise
