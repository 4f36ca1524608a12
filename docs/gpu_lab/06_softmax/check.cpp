// The starter is refused: computed from inf
#include <algorithm>

#include "docs/gpu_lab/lab.h"

int main() {
  const int rows = 8, columns = 100;
  std::vector<float> x = lab::numbers(rows * columns), expected;
  for (int row = 0; row < rows; ++row) {
    float* const of_row = &x[row * columns];
    for (int i = 0; i < columns; ++i) of_row[i] += static_cast<float>(100 * (row % 2));
    const double largest = *std::max_element(of_row, of_row + columns);
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += std::exp(of_row[i] - largest);
    for (int i = 0; i < columns; ++i) expected.push_back(static_cast<float>(std::exp(of_row[i] - largest) / sum));
  }
  const lab::Array<float> in(x), out(x.size());
  const lab::Counts counts = lab::run(softmax, 1, 256, in, out);
  lab::expect_values(out.host(), expected, 1e-6);
  // Every second row begins in the middle of a sector: 3 requests of 5 sectors in place of 4, and one of 16 bytes.
  return lab::finish(counts, {.sectors = 2 * 4 * (3 * 4 + 1 + 3 * 5 + 1)});
}
