// Summarises the repeated runs of a configuration: a row of a record (its members: bench/results/README.md), and the
// table that `train` prints.
#pragma once

#include "bench/cli/statistics.h"
#include "bench/measure/target.h"
#include "bench/report/record.h"

namespace hs::bench::measure {

struct Row {
  std::string name;
  std::vector<RunRecord> runs;  // fewer than requested if there is an error
  std::string error;
};

// The row of one run, which has no name yet, and that of all runs. lost: how many runs more there were, which failed.
Json to_json(const RunRecord& run, const Goal& goal);
Json to_json(const Row& row, const Goal& goal = {}, int64_t lost = 0);

// Puts the median of the values and, as NAME_low and NAME_high, its interval; null where there is none.
void put_median(Json& object, const std::string& name, const std::vector<double>& values);

// The row of all these runs, which have a row each of one configuration; without values if there are none.
Json merge_rows(const Json& rows, int64_t lost = 0);

// How many times as fast the second of two lists of seconds is, which were measured in the same passes.
struct SpeedUp {
  double ratio;              // of the medians: above 1 the second is faster
  Interval interval;         // its own; NaN with fewer than 3 passes
  std::string verdict;       // "faster", "slower" or cannot_tell()
  std::string text() const;  // "1.20 times as fast, 1.15 to 1.26"
  Json to_json() const;      // the members ratio, ratio_low and ratio_high
};
// verdicts: how many are shown together, all of which must be right.
SpeedUp speed_up(const std::vector<double>& before, const std::vector<double>& after, size_t verdicts);

// How many verdicts a record of `techniques` shows: of each row beside the first and, in its answer, of each switch
// that is on in a cumulative row and saves time.
size_t verdicts_of(const Json& rows);

// Compares each row of `techniques` with the first: adds speed_up with its interval, verdict, and bytes_ratio; nothing
// to rows that failed, or if the first did.
void add_comparisons(Json& rows);

// A line per run and a summary, each ending in a newline and starting with the data set's name.
// REQUIRES: at least one run, no error
std::string to_table(const Row& row, const std::string& data_name);

// The first run's gradient noise scale, in a sentence; empty where it was not measured.
std::string noise_line(const Row& row, const std::string& data_name);
// The first run's plan, a line per stage; empty without a plan.
std::string plan_table(const Row& row, const std::string& data_name);
Json to_json(const CheckpointPlan& plan);
Json segment_to_json(const Segment& segment);

// Trainings in turns, A B C A B C: what disturbs the machine for a while disturbs all of them.
// Calls run(row, turn) of each row in each turn, from 0; a row for which it returns false has no more turns.
// after(turn) ends a turn.
template <class Run, class After>
void in_turns(size_t rows, int64_t turns, const Run& run, const After& after) {
  std::vector<bool> ended(rows, false);
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (size_t row = 0; row < rows; ++row) {
      if (!ended[row]) ended[row] = !run(row, turn);
    }
    after(turn);
  }
}

}  // namespace hs::bench::measure
