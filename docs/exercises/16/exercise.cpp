// The starter: three loops, which load two numbers for each product. Change it until tests/exercise 16 is content.
#include "docs/exercises/16/exercise.h"

namespace exercise {

void multiply(const Matrix& a, const Matrix& b, Matrix& c) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < a.columns; ++k) sum += a.load(i, k) * b.load(k, j);
      c.store(i, j, sum);
    }
  }
}

}  // namespace exercise
