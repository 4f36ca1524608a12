// Exercise 8, of docs/chapters/06_mixed_precision.md: the gradient where it is born. Edit exercise.cpp beside this
// file, then run tests/exercise 08.
#pragma once

#include <cstdint>

namespace exercise {

// loss = mean over rows of (log sum_j exp(z_j) - z_label); gradients gets dloss * d loss / dz, in f32:
//   gradients (rows, classes) = dloss * (softmax(logits) - one_hot(labels)) / rows
//
// Within 1e-5 of the exact value, relative to each value, for finite logits of any size and also for the label's own
// logit; values below 1e-30 may be 0. A logit of -inf that is not the label's is a class that does not exist: its
// gradient is 0. A row with a NaN gets NaN. gradients may be the array of the logits.
// REQUIRES: rows, classes > 0; 0 <= labels < classes; the largest logit of a row is not -inf
void cross_entropy_backward(const float* logits, const int32_t* labels, int64_t rows, int64_t classes, float dloss,
                            float* gradients);

}  // namespace exercise
