// The starter is refused: 4608 sectors of global memory
#include "docs/gpu_lab/lab.h"

int main() {
  const int n = 64;
  const std::vector<float> x = lab::numbers(n * n);
  std::vector<float> expected(x.size());
  for (int i = 0; i < n * n; ++i) expected[i % n * n + i / n] = x[i];
  const lab::Array<float> in(x), out(x.size());
  const lab::Counts counts = lab::run(transpose, dim3(2, 2), dim3(32, 8), in, out);
  lab::expect_values(out.host(), expected);
  return lab::finish(counts, {.sectors = 4 * 2 * n * n / 32, .shared_requests = 2 * n * n / 32});  // 4 for each request
}
