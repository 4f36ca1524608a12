// Two records of the same commands, row by row: is the second slower than chance explains?
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

// Below this probability a difference is more than chance (one-sided).
inline constexpr double significance = 0.05;

struct RowComparison {
  std::string name;
  size_t runs_before, runs_after;
  double seconds_before, seconds_after;  // medians
  double change;                         // of the time: 0.1 is 10 % slower
  double accuracy_change;
  double probability;  // that chance alone gives a difference this large in this direction
  bool can_tell;       // whether there are enough runs for `probability` to fall below `significance`
  bool significant() const { return probability <= significance; }
  const char* verdict() const;  // in words
  bool is_regression(double limit) const { return significant() && change > limit; }
};

struct Comparison {
  std::vector<RowComparison> rows;       // the rows in both records
  std::vector<std::string> only_one;     // "NAME: only in FILE"
  std::vector<std::string> differences;  // of machine, data and settings: "threads: 1 and 2"
};

Comparison compare(const Json& before, const Json& after, const std::string& before_name,
                   const std::string& after_name);

report::Rows rows_of(const Comparison& comparison);

}  // namespace hs::bench::measure
