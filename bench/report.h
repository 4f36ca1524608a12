// Results of one configuration as a table for people and as a row for programs.
//
// A record is an object {"schema": "halfstep-bench-1", "command", "environment", ...}; `train` adds "data", "config",
// "kernels" (slot: variant), "choices" (what kernels chose by themselves: cuBLASLt's algorithms), "ops" (which op ran
// in which type on which variant) and "rows". Readers ignore members that they do not know. Of a row:
//   name                       the configuration's
//   seconds, seconds_all       of training alone: the median of the repeats, and each
//   samples_per_second         training samples of one repeat / seconds
//   test_accuracy, .._all      0 to 1: the mean of the repeats, and each
//   final_loss                 training loss of the last epoch, mean of the repeats
//   peak_bytes                 largest amount that the engine's allocator handed out, of all repeats
//   peak_resident_bytes        of the process so far, its data set included
//   resident_bytes_by_epoch    after each epoch of the first repeat: a leak shows as a slope
//   parts                      where the seconds went, means of the repeats: wait (for data), upload, forward,
//   backward,
//                              update, replay; the host's times (models/train.h says what that means on a GPU)
//   stall_share                wait / seconds
//   weights_sha256, .._all     of the first repeat's final weights, and each
//   checkpoint_plan            null without a budget; else of the first repeat: stages {name, input_bytes,
//                              saved_bytes, forward_ms, backward_ms, recomputed}, segments {begin, end},
//                              predicted_peak_bytes, measuring_peak_bytes, step_ms, extra_ms; peak_bytes is then
//                              counted from the plan on
//   epochs                     of the first repeat: training_loss, test_loss, test_accuracy, seconds
//   error                      only if a run failed; figures that there are not are null
#pragma once

#include <string>
#include <vector>

#include "bench/experiment.h"
#include "bench/json_file.h"

namespace hs::bench {

inline constexpr const char* schema_name = "halfstep-bench-1";

struct Row {
  std::string name;
  std::vector<RunRecord> runs;  // may be fewer than wanted if there is an error
  std::string error;
};

Json to_json(const Row& row);

// A line per run and a summary, each ending in a newline and starting with the data set's name.
// REQUIRES: at least one run, no error
std::string to_table(const Row& row, const std::string& data_name);

// The part of the time that training waited for data; NaN if nothing ran.
double stall_share(const Row& row);
// The plan of the first run, a line per stage. Empty without a plan.
std::string plan_table(const Row& row, const std::string& data_name);
Json to_json(const CheckpointPlan& plan);

double median(std::vector<double> values);  // NaN of nothing
double mean(const std::vector<double>& values);

}  // namespace hs::bench
