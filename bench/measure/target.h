// Time and cost to reach a target accuracy: the goal of a run, of which seconds per epoch are only a part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/json_file.h"
#include "bench/measure/experiment.h"

namespace hs::bench::measure {

// --target-accuracy and --price-per-hour.
struct Goal {
  double accuracy = 0;        // 0 to 1; 0: none
  double price_per_hour = 0;  // in any currency; 0: none

  void declare(cli::Flags& flags);
};

// The first evaluation of a run that reaches the target.
struct Reached {
  int64_t epoch;              // from 1
  double training_seconds;    // until then
  double evaluation_seconds;  // until then, including that evaluation
};
std::optional<Reached> reached(const TrainResult& result, double accuracy);

// Adds the member "target" to a row: accuracy, reached_share, and seconds (training), evaluation_seconds and epochs,
// which are means over the runs that reached the target, or null if none did. With a price also "cost": per_run and
// to_target, for training and evaluation together.
void add_goal(Json& row, const std::vector<RunRecord>& runs, const Goal& goal);

// "mnist  target 97.00 %: ...": the members above as a line for people; empty if there are none.
std::string goal_line(const Json& row, const std::string& data_name);

// Throws Error (missed) if a run of any row did not reach the target. To be called after all output is written.
void check_goal(const Json& rows, const Goal& goal);

}  // namespace hs::bench::measure
