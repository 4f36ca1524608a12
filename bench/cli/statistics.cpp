#include "bench/cli/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>

#include "bench/cli/json_file.h"
#include "engine/random.h"

namespace hs::bench {
namespace {

constexpr int resamples = 2000;
constexpr double tail = 0.025;

// The interval of `figure` over resamples of `size` indices, drawn with replacement.
Interval bootstrap(size_t size, const std::function<double(const std::vector<size_t>& drawn)>& figure) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (size < 2) return {nan, nan};
  std::vector<double> figures;
  uint32_t draws = 0;
  for (int i = 0; i < resamples; ++i) {
    std::vector<size_t> drawn(size);
    for (size_t& index : drawn) index = philox4x32({{draws++, 0, 0, 0}}, 0, 0).word[0] % size;
    figures.push_back(figure(drawn));
  }
  std::ranges::sort(figures);
  const auto at = [&](double share) { return figures[static_cast<size_t>(std::lround(share * (resamples - 1)))]; };
  return {at(tail), at(1 - tail)};
}

std::vector<double> chosen(const std::vector<double>& values, const std::vector<size_t>& indices) {
  return mapped(indices, [&](size_t i) { return values[i]; });
}

// Twice the rank of each value, from 2; equal values share their mid-rank. Doubled to stay an integer.
std::vector<int64_t> double_ranks(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  std::vector<int64_t> ranks;
  for (const double value : values) {
    const auto equal = std::ranges::equal_range(sorted, value);
    ranks.push_back((equal.begin() - sorted.begin()) + (equal.end() - sorted.begin()) + 1);
  }
  return ranks;
}

// The number of choices of `count` ranks whose sum is at least `least`.
int64_t choices_with_sum(const std::vector<int64_t>& ranks, size_t count, int64_t least) {
  const auto total = static_cast<size_t>(std::accumulate(ranks.begin(), ranks.end(), int64_t{0}));
  // choices[k][s]: the choices of k of the ranks so far whose sum is s.
  std::vector<std::vector<int64_t>> choices(count + 1, std::vector<int64_t>(total + 1));
  choices[0][0] = 1;
  for (const int64_t rank : ranks) {
    const auto step = static_cast<size_t>(rank);
    for (size_t k = count; k > 0; --k) {
      for (size_t sum = total; sum >= step; --sum) choices[k][sum] += choices[k - 1][sum - step];
    }
  }
  return std::accumulate(choices[count].begin() + least, choices[count].end(), int64_t{0});
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval median_interval(const std::vector<double>& values) {
  return bootstrap(values.size(), [&](const std::vector<size_t>& drawn) { return median(chosen(values, drawn)); });
}

Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b) {
  return bootstrap(
      a.size(), [&](const std::vector<size_t>& drawn) { return median(chosen(a, drawn)) / median(chosen(b, drawn)); });
}

double probability_not_larger(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return 1;
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const std::vector<int64_t> ranks = double_ranks(all);
  const int64_t observed = std::accumulate(ranks.begin() + static_cast<int64_t>(a.size()), ranks.end(), int64_t{0});
  if (all.size() <= 20) {
    return static_cast<double>(choices_with_sum(ranks, b.size(), observed)) /
           static_cast<double>(choices_with_sum(ranks, b.size(), 0));
  }
  const auto n = static_cast<double>(all.size()), na = static_cast<double>(a.size()),
             nb = static_cast<double>(b.size());
  // The variance of b's rank sum, computed from the ranks themselves: correct with and without ties.
  double squares = 0;
  for (const int64_t rank : ranks) squares += std::pow(static_cast<double>(rank) / 2 - (n + 1) / 2, 2);
  const double deviation = std::sqrt(na * nb / (n * (n - 1)) * squares);
  if (deviation == 0) return 1;
  const double excess = static_cast<double>(observed) / 2 - nb * (n + 1) / 2 - 0.5;
  return std::erfc(excess / deviation / std::sqrt(2.0)) / 2;
}

double smallest_probability(size_t a, size_t b) {
  double ways = 1;  // (a + b) choose b
  for (size_t i = 1; i <= b; ++i) ways *= static_cast<double>(a + i) / static_cast<double>(i);
  return 1 / ways;
}

}  // namespace hs::bench
