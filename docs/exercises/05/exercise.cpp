// The starter: looks for inf by a comparison that NaN passes, and never grows. Change it until tests/exercise 05 is
// content.
#include "docs/exercises/05/exercise.h"

#include <limits>

namespace exercise {

bool unscale(std::vector<float>& gradients, LossScale& state, const ScaleRule& rule) {
  for (float& gradient : gradients) {
    if (gradient > std::numeric_limits<float>::max()) {
      state.scale /= 2;
      ++state.skipped;
      return false;
    }
    gradient /= state.scale;
  }
  ++state.finite;
  if (state.scale > rule.largest) state.scale = rule.largest;
  return true;
}

}  // namespace exercise
