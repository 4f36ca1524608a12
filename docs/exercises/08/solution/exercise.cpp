#include "docs/exercises/08/exercise.h"

#include <algorithm>
#include <cmath>

namespace exercise {

void cross_entropy_backward(const float* logits, const int32_t* labels, int64_t rows, int64_t classes, float dloss,
                            float* gradients) {
  const float factor = dloss / static_cast<float>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const float* z = logits + row * classes;
    float* dz = gradients + row * classes;
    const int64_t label = labels[row];
    // softmax does not change if all logits are shifted alike: with the largest one at 0, no exponential is above 1.
    const float largest = *std::max_element(z, z + classes);
    float others = 0;
    for (int64_t j = 0; j < classes; ++j) {
      dz[j] = std::exp(z[j] - largest);  // z[j] is not read again
      if (j != label) others += dz[j];
    }
    const float sum = dz[label] + others;
    for (int64_t j = 0; j < classes; ++j) dz[j] *= factor / sum;
    // p - 1 is minus the sum of the other probabilities, which does not cancel.
    dz[label] = -others / sum * factor;
  }
}

}  // namespace exercise
