#include "bench/cli/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include "bench/cli/json_file.h"

namespace hs::bench {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// The probability that Student's t is beyond sqrt(degrees) * tan(angle) on either side: Abramowitz and Stegun,
// "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
double student_beyond(double angle, size_t degrees) {
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool is_odd = degrees % 2 == 1;
  double sum = 0, term = is_odd ? cosine : 1;
  for (size_t i = is_odd ? 3 : 2; i <= degrees; i += 2) {
    sum += term;
    term *= static_cast<double>(i - 1) / static_cast<double>(i) * cosine * cosine;
  }
  return 1 - (is_odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum);
}

// Where a falling function of 0 to `last` is `wanted`.
double inverse(const std::function<double(double)>& falling, double last, double wanted) {
  double low = 0, high = last;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (falling(middle) > wanted ? low : high) = middle;
  }
  return high;
}

struct LogMean {
  double mean, error;  // of the mean
  size_t degrees;      // 0: there is no error
};

LogMean log_mean(const std::vector<double>& values) {
  const std::vector<double> logs = mapped(values, [](double value) { return std::log(value); });
  const double middle = mean(logs), count = static_cast<double>(logs.size());
  double squares = 0;
  for (const double log : logs) squares += (log - middle) * (log - middle);
  const bool has_error = logs.size() >= 3 && std::isfinite(squares);
  return {middle, std::sqrt(squares / (count - 1) / count), has_error ? logs.size() - 1 : 0};
}

// Of a positive value whose logarithm was measured several times; `center` is always in it.
Interval log_interval(const std::vector<double>& values, double center, double error) {
  const LogMean logs = log_mean(values);
  if (logs.degrees == 0 || !std::isfinite(center)) return {nan, nan};
  const auto beyond = [&](double angle) { return student_beyond(angle, logs.degrees); };
  const double angle = inverse(beyond, std::numbers::pi / 2, error);
  const double width = std::tan(angle) * std::sqrt(static_cast<double>(logs.degrees)) * logs.error;
  return {std::min(center, std::exp(logs.mean - width)), std::max(center, std::exp(logs.mean + width))};
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) all.push_back(a[i] / b[i]);
  return all;
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
  size_t most = 0;  // so far
  for (const int64_t rank : ranks) {
    const auto step = static_cast<size_t>(rank);
    most += step;
    for (size_t k = count; k > 0; --k) {
      for (size_t sum = most; sum >= step; --sum) choices[k][sum] += choices[k - 1][sum - step];
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

Interval median_interval(const std::vector<double>& values) { return log_interval(values, median(values), page_error); }

Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b, double error) {
  return log_interval(ratios(a, b), median(a) / median(b), error);
}

double ratio_probability(const std::vector<double>& a, const std::vector<double>& b) {
  const LogMean logs = log_mean(ratios(a, b));
  const auto is_lost = [](double value) { return !std::isfinite(value); };
  if (std::ranges::any_of(a, is_lost) || std::ranges::any_of(b, is_lost)) return probability_of_both(a, b);
  if (logs.degrees == 0 || (std::log(median(a) / median(b)) > 0) != (logs.mean > 0)) return 1;
  const double t = std::abs(logs.mean) / logs.error;
  return student_beyond(std::atan(t / std::sqrt(static_cast<double>(logs.degrees))), logs.degrees);
}

double probability_of_both(const std::vector<double>& a, const std::vector<double>& b) {
  return std::min(1.0, 2 * std::min(probability_not_larger(a, b), probability_not_larger(b, a)));
}

size_t fewest_runs(double error) {
  size_t runs = 3;
  while (smallest_probability(runs, runs) > error) ++runs;
  return runs;
}

std::string cannot_tell(size_t runs, double probability, double error, size_t fewest) {
  const auto normal_beyond = [](double z) { return std::erfc(z / std::numbers::sqrt2); };
  const auto deviations = [&](double beyond) { return inverse(normal_beyond, 10, beyond); };
  if (runs < fewest) return fmt::format("cannot tell: {} runs or more would do", fewest);
  const double times = deviations(error) / deviations(std::min(probability, 0.99));
  const double needed = std::max(std::ceil(static_cast<double>(runs) * times * times), static_cast<double>(runs + 1));
  return needed > 100 ? "cannot tell: more than 100 runs would do"
                      : fmt::format("cannot tell: about {:.0f} runs would do", needed);
}

double probability_not_larger(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return 1;
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const std::vector<int64_t> ranks = double_ranks(all);
  const int64_t observed = std::accumulate(ranks.begin() + static_cast<int64_t>(a.size()), ranks.end(), int64_t{0});
  if (all.size() <= 20) {
    return static_cast<double>(choices_with_sum(ranks, b.size(), observed)) * smallest_probability(a.size(), b.size());
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
