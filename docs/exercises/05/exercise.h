// Exercise 5, of docs/chapters/06_mixed_precision.md: the end of a step with loss scaling. Edit exercise.cpp beside
// this file, then run tests/exercise 05.
#pragma once

#include <vector>

namespace exercise {

struct LossScale {
  float scale = 65536;  // always a power of two
  int finite = 0;       // finite steps since the scale last changed
  int skipped = 0;      // steps skipped, ever
};

struct ScaleRule {
  float smallest = 1, largest = 4294967296.0f;
  int growth_interval = 2000;
};

// gradients are those of the loss times state.scale. If all of them are finite, divides them by that scale and returns
// true: the step may be made. If one is inf or NaN, leaves them all as they are and returns false.
//
// Then prepares state for the next step. After a step that is skipped the scale is halved; after growth_interval finite
// steps without a change it is doubled; in either case the count of finite steps begins again. The scale stays between
// rule.smallest and rule.largest.
bool unscale(std::vector<float>& gradients, LossScale& state, const ScaleRule& rule);

}  // namespace exercise
