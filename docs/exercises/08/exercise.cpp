// The starter: the formula of the books. Change it until tests/exercise 08 is content.
#include "docs/exercises/08/exercise.h"

#include <cmath>

namespace exercise {

void cross_entropy_backward(const float* logits, const int32_t* labels, int64_t rows, int64_t classes, float dloss,
                            float* gradients) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* z = logits + row * classes;
    float* dz = gradients + row * classes;
    float sum = 0;
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(z[j]);
    for (int64_t j = 0; j < classes; ++j) {
      const float target = j == labels[row] ? 1.0f : 0.0f;
      dz[j] = dloss * (std::exp(z[j]) / sum - target) / static_cast<float>(rows);
    }
  }
}

}  // namespace exercise
