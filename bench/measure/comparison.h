// Two records of the same commands, row by row: is the second slower, or less accurate, than chance explains?
#pragma once

#include "bench/cli/command_line.h"
#include "bench/cli/statistics.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

// A figure of the runs of both. Runs that did not finish are among the values: endless, with an accuracy of 0.
struct Tested {
  double before, after;  // medians, or means; NaN if there are none
  double probability;    // that chance alone gives a difference this large, in either direction
  std::vector<double> values_before, values_after;
  const char *above, *below;  // of a difference that counts: "slower", "faster"
  double error = page_error;  // the share of this verdict in what may be wrong on the page

  bool can_tell() const;  // whether there are enough runs for `probability` to fall to `error`
  bool significant() const { return probability <= error; }
  std::string verdict() const;  // `above`, `below` or cannot_tell()
};

// The claim that `after` is at least `times` times as fast as `before`: the seconds of one against `times` the seconds
// of the other, one-sided. "met" where that is not chance, "missed" where the ratio of the medians is smaller or the
// result is not as good, else cannot_tell(). verdicts: how many are shown together, this one included.
struct Claim {
  double ratio, probability, error;
  std::string verdict;
};
Claim judge_claim(const std::vector<double>& before, const std::vector<double>& after, double times, bool is_as_good,
                  size_t verdicts);

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
  size_t gone = 0;                       // the first of them: only in the first record
  std::vector<std::string> lost;         // which runs did not finish
  std::vector<std::string> differences;  // of machine, data and settings: "threads: 1 and 2"
};

// train: its flags, as they are declared. took_turns: the runs of both did, so that what disturbed the machine
// disturbed both. claims: judged beside the rows.
Comparison compare(const cli::Flags& train, const Json& before, const Json& after, const std::string& before_name,
                   const std::string& after_name, bool took_turns = false, size_t claims = 0);

report::Rows rows_of(const Comparison& comparison);
report::Table learned_by(const Comparison& comparison);  // accuracy, loss, and the time to the target

// "kernel gemm (blocked -> simple) takes 61 % of the difference: 12.1 and 31 ms a step; --kernel none -> gemm=simple":
// what accounts for the most of the seconds by which a whole run, evaluation included, is longer or shorter, and which
// of the settings behind it differ. Throws Error (usage) that names a record that is not of `train`.
std::string why(const cli::Flags& train, const Json& before, const Json& after, const std::string& before_name,
                const std::string& after_name);

}  // namespace hs::bench::measure
