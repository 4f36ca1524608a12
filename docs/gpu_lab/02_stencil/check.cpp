// The starter is refused: ::tile[0], which no thread of this block has written
#include "docs/gpu_lab/lab.h"

int main() {
  const int n = 1024;
  const std::vector<float> x = lab::numbers(n);
  std::vector<float> expected(n);
  for (int i = 0; i < n; ++i) {
    expected[i] = (i > 0 ? x[i - 1] : 0) + x[i] + (i + 1 < n ? x[i + 1] : 0);
  }
  const lab::Array<float> in(x), out(n);
  const lab::Counts counts = lab::run(stencil, 4, 256, n, in, out);
  lab::expect_values(out.host(), expected);
  return lab::finish(counts, {.sectors = 2 * 128 + 6, .shared_requests = 4 * (8 + 2 + 3 * 8)});  // 6: the inner halos
}
