#include "docs/exercises/05/exercise.h"

#include <algorithm>
#include <cmath>

namespace exercise {

bool unscale(std::vector<float>& gradients, LossScale& state, const ScaleRule& rule) {
  // All of them before the first is changed: a step is made as a whole or not at all.
  if (!std::ranges::all_of(gradients, [](float gradient) { return std::isfinite(gradient); })) {
    ++state.skipped;
    state.finite = 0;
    state.scale = std::max(state.scale / 2, rule.smallest);
    return false;
  }
  for (float& gradient : gradients) gradient /= state.scale;  // with the scale that they were made with
  if (++state.finite == rule.growth_interval) {
    state.finite = 0;
    state.scale = std::min(state.scale * 2, rule.largest);
  }
  return true;
}

}  // namespace exercise
