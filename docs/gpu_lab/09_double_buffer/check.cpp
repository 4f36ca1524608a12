// The starter is refused: ::stages[252], which no thread of this block has written
#include "docs/gpu_lab/lab.h"

int main() {
  const int tiles = 16;
  const std::vector<float> x = lab::numbers(256 * tiles);
  std::vector<float> expected(256);
  for (int i = 0; i < 256 * tiles; ++i) expected[255 - i % 256] += x[i];
  const lab::Array<float> in(x), out(256);
  const lab::Counts counts = lab::run(sum_tiles, 1, 64, in, out);
  lab::expect_values(out.host(), expected);
  // That copies and sums overlap is time, which the emulator does not have. Two stages it sees.
  lab::expect(counts.shared_bytes == 2 * 1024,
              "shared memory has " + std::to_string(counts.shared_bytes) +
                  " bytes, expected two stages of 1024: one is filled while the other is read");
  return lab::finish(counts, {.sectors = 2 * 16 * (tiles + 1), .shared_requests = 2 * 2 * tiles});  // 2 warps
}
