// Statistics for a handful of measured times. Run times are skewed to the right and have outliers, so what is shown is
// a median; what is judged is a rank, or the logarithm of a ratio.
//
// A verdict is given only where equal runs would get it in at most 5 of 100 cases. What is shown together is judged
// together: of n verdicts on a page each may be wrong in 5 / n of 100 cases (Bonferroni), so that the page is wrong in
// 5 at most.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hs::bench {

double median(std::vector<double> values);  // NaN if there are none
double mean(const std::vector<double>& values);

// The chance that a page may have of a verdict that is wrong.
inline constexpr double page_error = 0.05;

// An interval that contains the true value in all but `error` of the cases, also with three values; NaN with fewer, or
// where one is not finite. Student's t of the logarithms ("The probable error of a mean", 1908), widened to contain the
// median that it is shown with. Outliers make it wider, not wrong.
struct Interval {
  double low, high;
  bool contains(double value) const { return low <= value && value <= high; }
};

Interval median_interval(const std::vector<double>& values);  // of all but 5 of 100 cases

// For median(a) / median(b), where a[i] and b[i] were measured in the same pass: from the ratios within passes, so
// whatever slowed both down cancels.
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b, double error = page_error);

// The probability that the ratios within passes are as far from 1, on either side, if a and b are equally fast: at most
// `error` exactly where ratio_interval() does not contain 1. 1 for fewer than 3 passes. If a value is infinite, a run
// that never got there, ratios say nothing: it is probability_of_both().
double ratio_probability(const std::vector<double>& a, const std::vector<double>& b);

// The probability that b's values exceed a's by at least as much as they do, if both came from one distribution: the
// one-sided test of Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
// the other", 1947, with mid-ranks for ties. Up to 20 values in total it is exact, by counting every split of the
// values into two groups; above, the normal approximation with corrections for ties and continuity. 1 if one is empty.
double probability_not_larger(const std::vector<double>& a, const std::vector<double>& b);

// The two-sided test of Mann and Whitney: twice the smaller of the two probabilities, for those who look first which
// of a and b is larger.
double probability_of_both(const std::vector<double>& a, const std::vector<double>& b);

// The smallest value that probability_not_larger can return for groups of these sizes.
double smallest_probability(size_t a, size_t b);
// The fewest runs of each of two groups with which that is at most `error`; 3 at the least.
size_t fewest_runs(double error);

// "cannot tell: about 12 runs would do", if the difference that these runs with this probability showed is real; or
// `fewest`, with which the test can tell at all.
std::string cannot_tell(size_t runs, double probability, double error, size_t fewest);

}  // namespace hs::bench
