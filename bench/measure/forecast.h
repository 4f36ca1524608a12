// Forecasts the cost of measurements from a few of their steps, for --dry-run.
#pragma once

#include "bench/measure/experiment.h"
#include "bench/report/table.h"

namespace hs::bench::measure {

struct Forecast {
  double seconds;  // of one run, evaluation included
  size_t peak_bytes;
};

// Times four steps and an evaluation of one batch, after an equal warm-up. Throws what a run throws.
Forecast forecast(const Experiment& experiment, const SampleSource& train, const SampleSource& test);

// What --dry-run prints: a table of the rows that would be measured, and the minutes that all of them take.
class DryRun {
 public:
  explicit DryRun(std::vector<std::string> heads, size_t left = 1);

  // `runs` runs of a row whose last two columns are the seconds and the peak of one run. Throws Error if a stop signal
  // arrived.
  void add(std::vector<std::string> names, const Forecast& run, int64_t runs);

  // `rows`: "3 runs".
  void print(const std::string& headline, const std::string& data, const std::string& rows) const;

 private:
  report::Table table_;
  double seconds_ = 0;
};

}  // namespace hs::bench::measure
