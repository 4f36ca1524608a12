// Time and cost to reach a target: the goal of a run; seconds per epoch are only a part of it.
#pragma once

#include "bench/cli/command_line.h"
#include "bench/measure/experiment.h"

namespace hs::bench::measure {

// --target and --price-per-hour.
struct Goal {
  std::optional<Target> target;
  double price_per_hour = 0;  // in any currency; 0: none

  void declare(cli::Flags& flags, const std::string& what_target_does);
};

// Adds the members "target" and, with a price, "cost" to the row of a run, as bench/results/README.md has them. What
// counts is the first of its validations that reaches the target or, where it has none, of its tests.
void add_goal(Json& row, const RunRecord& run, const Goal& goal);

// "mnist  target accuracy=0.97: ...": the members above as a line for people; empty if there are none.
std::string goal_line(const Json& row, const std::string& data_name);

// Throws Error (missed) if a run of any row did not reach the target. To be called after all output is written.
void check_goal(const Json& rows, const Goal& goal);

}  // namespace hs::bench::measure
