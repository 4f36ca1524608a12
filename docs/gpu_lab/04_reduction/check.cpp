// The starter is refused: 105 bank conflicts
#include <numeric>

#include "docs/gpu_lab/lab.h"

int main() {
  const std::vector<float> x = lab::numbers(1024);
  const lab::Array<float> in(x), out(1);
  const lab::Counts counts = lab::run(reduction, 1, 256, in, out);
  lab::expect_values(out.host(), {std::accumulate(x.begin(), x.end(), 0.0f)});
  // Steps have 4, 2 and six times 1 warp, of two loads and a store; and the first store and the last load.
  return lab::finish(counts, {.sectors = 128 + 1, .shared_requests = 8 + 3 * 12 + 1});
}
