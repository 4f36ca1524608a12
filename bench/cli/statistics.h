// Statistics for a handful of measured times. Run times are skewed to the right and have outliers, so everything here
// uses medians and ranks, and nothing assumes a normal distribution.
#pragma once

#include <cstddef>
#include <vector>

namespace hs::bench {

double median(std::vector<double> values);  // NaN if there are none
double mean(const std::vector<double>& values);

// An interval that contains the true value in 95 of 100 cases; less often with few values, because it cannot extend
// beyond their range.
struct Interval {
  double low, high;
  bool contains(double value) const { return low <= value && value <= high; }
};

// For the median: the percentile bootstrap (Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13)
// with 2,000 resamples. The same values give the same interval. NaN for fewer than 2 values.
Interval median_interval(const std::vector<double>& values);

// For median(a) / median(b), where a[i] and b[i] were measured in the same pass: whole passes are resampled, so
// whatever slowed both down cancels. NaN for fewer than 2 passes. REQUIRES: a.size() == b.size()
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b);

// The probability that b's values exceed a's by at least as much as they do, if both came from one distribution: the
// one-sided test of Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
// the other", 1947, with mid-ranks for ties. Up to 20 values in total it is exact, by counting every split of the
// values into two groups; above, the normal approximation with corrections for ties and continuity. 1 if one is empty.
double probability_not_larger(const std::vector<double>& a, const std::vector<double>& b);

// The smallest value that probability_not_larger can return for groups of these sizes.
double smallest_probability(size_t a, size_t b);

}  // namespace hs::bench
