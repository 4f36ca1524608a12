// Two records of the same commands, row by row: is the second slower, or less accurate, than chance explains?
#pragma once

#include "bench/cli/statistics.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

// Below this probability a difference is more than chance (one-sided).
inline constexpr double significance = 0.05;

// A figure of the runs of both.
struct Tested {
  double before, after;       // medians, or means; NaN if there are none
  double probability;         // that chance alone gives a difference this large in this direction
  bool can_tell;              // whether there are enough runs for `probability` to fall below `significance`
  const char *above, *below;  // of a difference that counts: "slower", "faster"

  bool significant() const { return can_tell && probability <= significance; }
  std::string verdict() const;  // in words
};

struct RowComparison {
  std::string name;  // of both; of two configurations that differ in it "mlp and mnist_cnn"
  size_t runs_before, runs_after;
  Tested seconds;          // medians
  double change;           // of the seconds: 0.1 is 10 % slower
  Tested accuracy, loss;   // means; the loss is of the test after the last epoch
  double accuracy_change;  // of the means
  Tested to_target;        // medians of seconds; those of a run that missed are infinite
  std::string target;      // of both: "accuracy=0.97"; empty: they have none, or two
  Interval speed_up;       // seconds.before / seconds.after; NaN unless the runs took turns
  bool is_regression(double limit) const { return seconds.significant() && change > limit; }
};

struct Comparison {
  std::vector<RowComparison> rows;       // the rows in both records
  std::vector<std::string> only_one;     // "NAME: only in FILE"
  std::vector<std::string> differences;  // of machine, data and settings: "threads: 1 and 2"
};

// took_turns: the runs of both did, so that what disturbed the machine disturbed both.
Comparison compare(const Json& before, const Json& after, const std::string& before_name, const std::string& after_name,
                   bool took_turns = false);

report::Rows rows_of(const Comparison& comparison);
report::Table learned_by(const Comparison& comparison);  // accuracy, loss, and the time to the target

// "kernel gemm (blocked -> simple) takes 61 % of the difference: 12.1 and 31 ms a step; --kernel none -> gemm=simple":
// what accounts for the most of the seconds by which a whole run, evaluation included, is longer or shorter, and which
// of the settings behind it differ. Throws Error (usage) that names a record that is not of `train`, or predates
// `parts`.
std::string why(const Json& before, const Json& after, const std::string& before_name, const std::string& after_name);

}  // namespace hs::bench::measure
