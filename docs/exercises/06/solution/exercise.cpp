#include "docs/exercises/06/exercise.h"

#include <algorithm>
#include <numeric>

namespace exercise {

std::vector<float> weights(std::span<const int64_t> sizes) {
  // The samples that the step really has, not batch * accumulate.
  const auto samples = static_cast<float>(std::reduce(sizes.begin(), sizes.end()));
  std::vector<float> factors;
  for (const int64_t size : sizes) factors.push_back(static_cast<float>(size) / samples);
  return factors;
}

std::vector<std::vector<int64_t>> steps(int64_t samples, int64_t batch, int64_t accumulate) {
  std::vector<std::vector<int64_t>> result;
  for (int64_t left = samples; left > 0;) {
    auto& sizes = result.emplace_back();
    for (int64_t i = 0; i < accumulate && left > 0; ++i) {
      sizes.push_back(std::min(batch, left));
      left -= sizes.back();
    }
  }
  return result;
}

}  // namespace exercise
