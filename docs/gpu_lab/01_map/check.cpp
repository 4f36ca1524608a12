// The starter is refused: element 256 is
#include "docs/gpu_lab/lab.h"

int main() {
  const int n = 1000;
  const std::vector<float> x = lab::numbers(n);
  std::vector<float> expected;
  for (float value : x) expected.push_back(2 * value + 1);
  const lab::Array<float> in(x), out(n);
  const lab::Counts counts = lab::run(map, 4, 256, n, in, out);
  lab::expect_values(out.host(), expected);
  return lab::finish(counts, {.sectors = 2 * 125});  // 4000 bytes in and out
}
