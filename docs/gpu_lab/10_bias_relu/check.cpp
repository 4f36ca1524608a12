// The starter is refused: 1280 requests to global memory
#include <algorithm>

#include "docs/gpu_lab/lab.h"

int main() {
  const int rows = 64, columns = 128;
  std::vector<float> x = lab::numbers(rows * columns, 1), bias = lab::numbers(columns, 2), expected;
  for (float& value : x) value -= 8;
  for (int i = 0; i < rows * columns; ++i) expected.push_back(std::max(x[i] + bias[i % columns], 0.0f));
  const lab::Array<float> in(x), added(bias), out(x.size());
  const lab::Counts counts = lab::run(bias_relu, 1, 256, in, added, out);
  lab::expect_values(out.host(), expected);
  // Rows of 16 sectors, in and out; the bias once by each of 8 warps.
  return lab::finish(counts, {.sectors = 16 * (2 * rows + 8), .requests = 2 * rows + 8});
}
