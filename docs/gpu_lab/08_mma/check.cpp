// The starter is refused: element 0 is 93.062500
#include "docs/gpu_lab/lab.h"

int main() {
  const std::vector<float> a = lab::numbers(16 * 16, 1), b = lab::numbers(16 * 8, 2);
  std::vector<float> expected(16 * 8);
  std::vector<__half> a_rows, b_columns;
  for (float value : a) a_rows.emplace_back(value);
  for (int i = 0; i < 8 * 16; ++i) b_columns.emplace_back(b[i % 16 * 8 + i / 16]);
  for (int i = 0; i < 16 * 8; ++i) {
    for (int k = 0; k < 16; ++k) expected[i] += a[i / 8 * 16 + k] * b[k * 8 + i % 8];
  }
  const lab::Array<__half> left(a_rows), right(b_columns);
  const lab::Array<float> out(expected.size());
  const lab::Counts counts = lab::run(one_mma, 1, 32, left, right, out);
  lab::expect_values(out.host(), expected);
  return lab::finish(counts, {.sectors = 8 * (4 + 2 + 2)});  // 8 rows or columns of 32 bytes for each request
}
