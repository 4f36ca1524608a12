// The starter is refused: 8320 sectors of global memory
#include "docs/gpu_lab/lab.h"

int main() {
  const int m = 32, n = 32, depth = 64;
  const std::vector<float> a = lab::numbers(m * depth, 1), b = lab::numbers(depth * n, 2);
  std::vector<float> expected(m * n);
  for (int i = 0; i < m * n; ++i) {
    for (int k = 0; k < depth; ++k) expected[i] += a[i / n * depth + k] * b[k * n + i % n];
  }
  const lab::Array<float> left(a), right(b), out(m * n);
  const lab::Counts counts = lab::run(product, dim3(2, 2), dim3(16, 16), left, right, out);
  lab::expect_values(out.host(), expected);
  // 4 blocks of 8 warps, whose requests are 2 rows of 2 sectors: 4 pairs of tiles, and the result.
  return lab::finish(counts, {.sectors = 4 * 8 * 4 * (4 * 2 + 1), .shared_requests = 4 * 8 * 4 * (2 + 2 * 16)});
}
