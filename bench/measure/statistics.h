// What a handful of measured times can say. Times of programs are skewed to the right and have outliers, so everything
// here is about medians and ranks, and nothing assumes a normal distribution.
#pragma once

#include <cstddef>
#include <vector>

namespace hs::bench::measure {

double median(std::vector<double> values);  // NaN of nothing
double mean(const std::vector<double>& values);

// An interval that holds the true value in 95 of 100 cases; with few values less often, for it cannot leave their
// range.
struct Interval {
  double low, high;
  bool contains(double value) const { return low <= value && value <= high; }
};

// Of the median: the percentile bootstrap (Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13)
// with 2,000 resamples. The same values give the same interval. NaN of fewer than 2 values.
Interval median_interval(const std::vector<double>& values);

// Of median(a) / median(b), where a[i] and b[i] were measured in the same pass: passes are drawn together, so what
// slowed both down does not count. NaN of fewer than 2 passes. REQUIRES: a.size() == b.size()
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b);

// The probability that b's values are as much larger than a's as they are, if both came from one distribution: the
// one-sided test of Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
// the other", 1947, with mid-ranks for ties. Exact, by counting every division of the values into two groups, up to 20
// values together; the normal approximation with correction for ties and continuity above. 1 if one is empty.
double probability_not_larger(const std::vector<double>& a, const std::vector<double>& b);

// The smallest that probability_not_larger can be for groups of these sizes.
double smallest_probability(size_t a, size_t b);

}  // namespace hs::bench::measure
