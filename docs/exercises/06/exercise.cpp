// The starter: right as long as all micro-batches are full. Change it until tests/exercise 06 is content.
#include "docs/exercises/06/exercise.h"

namespace exercise {

std::vector<float> weights(std::span<const int64_t> sizes) {
  return std::vector<float>(sizes.size(), 1.0f / static_cast<float>(sizes.size()));
}

std::vector<std::vector<int64_t>> steps(int64_t samples, int64_t batch, int64_t accumulate) {
  const auto count = static_cast<size_t>(samples / (batch * accumulate));
  const std::vector<int64_t> full(static_cast<size_t>(accumulate), batch);
  return std::vector<std::vector<int64_t>>(count, full);
}

}  // namespace exercise
