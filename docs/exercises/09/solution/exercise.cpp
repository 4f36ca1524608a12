#include "docs/exercises/09/exercise.h"

#include <algorithm>
#include <vector>

namespace exercise {

Values gradient(std::span<const Stage> stages, const Activation& x, int64_t length, int64_t first_key,
                const std::function<Values(const Activation& y)>& loss_gradient) {
  const auto count = static_cast<int64_t>(stages.size());
  const auto run = [&](int64_t i, const Activation& input) {
    return stages[static_cast<size_t>(i)].forward(input, first_key + i);
  };

  std::vector<Activation> kept;
  Values dy;
  {
    Activation now = x;
    for (int64_t i = 0; i < count; ++i) {
      if (i % length == 0) kept.push_back(now);
      now = run(i, now);
    }
    dy = loss_gradient(now);
  }  // y is dropped before the first segment runs again

  while (!kept.empty()) {
    const int64_t begin = (static_cast<int64_t>(kept.size()) - 1) * length, end = std::min(begin + length, count);
    std::vector<Activation> inputs = {std::move(kept.back())};
    kept.pop_back();
    for (int64_t i = begin; i + 1 < end; ++i) inputs.push_back(run(i, inputs.back()));
    for (int64_t i = end; i-- > begin;) {
      dy = stages[static_cast<size_t>(i)].backward(inputs.back(), dy, first_key + i);
      inputs.pop_back();
    }
  }
  return dy;
}

}  // namespace exercise
