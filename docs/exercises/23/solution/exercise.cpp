#include "docs/exercises/23/exercise.h"

#include <array>

namespace exercise {
namespace {

using Points = std::array<Number, 6>;

// At 0, 1, -1, 2, -2 and infinity. What 1 and -1 share, and what 2 and -2 share, is computed once.
Points weight_points(const Signal& g) {
  const Number ends = 1 / 6.0f * (g[0] + g[2]), middle = 1 / 6.0f * g[1];
  const Number far = 1 / 24.0f * g[0] + 1 / 6.0f * g[2], half = 1 / 12.0f * g[1];
  return {0.25f * g[0], -ends - middle, middle - ends, far + half, far - half, g[2]};
}

Points data_points(const std::array<Number, 6>& d) {
  const Number even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1], far = d[4] - d[2], half = 2 * (d[3] - d[1]);
  return {d[4] - 5 * d[2] + 4 * d[0], even + odd, even - odd, far + half, far - half, d[5] - 5 * d[3] + 4 * d[1]};
}

std::array<Number, 4> results(const Points& m) {
  const Number sum = m[1] + m[2], difference = m[1] - m[2], far_sum = m[3] + m[4], far_difference = m[3] - m[4];
  return {m[0] + sum + far_sum, difference + 2 * far_difference, sum + 4 * far_sum,
          difference + 8 * far_difference + m[5]};
}

}  // namespace

std::vector<Signal> filter(const std::vector<Signal>& d, const std::vector<std::vector<Signal>>& g) {
  const size_t filters = g.size(), channels = d.size(), n = d[0].size() - 2;
  std::vector<std::vector<Points>> weights(filters);
  for (size_t k = 0; k < filters; ++k) {
    for (const Signal& taps : g[k]) weights[k].push_back(weight_points(taps));
  }
  std::vector<Signal> y(filters, Signal(n));
  for (size_t first = 0; first < n; first += 4) {
    std::vector<Points> tile;
    for (const Signal& signal : d) {
      std::array<Number, 6> piece;  // zeros beyond the end
      for (size_t i = 0; i < 6 && first + i < signal.size(); ++i) piece[i] = signal[first + i];
      tile.push_back(data_points(piece));
    }
    for (size_t k = 0; k < filters; ++k) {
      Points sums;
      for (size_t c = 0; c < channels; ++c) {
        for (size_t p = 0; p < 6; ++p) sums[p] += weights[k][c][p] * tile[c][p];
      }
      const std::array<Number, 4> four = results(sums);
      for (size_t i = 0; i < 4 && first + i < n; ++i) y[k][first + i] = four[i];
    }
  }
  return y;
}

}  // namespace exercise
