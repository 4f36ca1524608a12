#include "docs/exercises/11/exercise.h"

#include <cmath>

namespace exercise {

void Accumulator::add(std::span<const float> gradient, double weight) {
  if (weight == 0) return;  // not 0 * gradient, which is NaN where the gradient is
  for (size_t i = 0; i < gradient.size(); ++i) sum_[i] += weight * gradient[i];
  weight_ += weight;
}

std::optional<std::vector<float>> Accumulator::finish() {
  if (weight_ == 0) return std::nullopt;
  double squares = 0;
  for (double& value : sum_) {
    value /= weight_;  // the total is known only now
    squares += value * value;
  }
  const double norm = std::sqrt(squares);
  const double factor = std::isfinite(norm) && norm > max_norm_ ? max_norm_ / norm : 1;
  std::vector<float> result;
  for (double& value : sum_) {
    result.push_back(static_cast<float>(value * factor));
    value = 0;
  }
  weight_ = 0;
  return result;
}

}  // namespace exercise
