// Records for tests to modify: a valid one of `techniques`. And the flags of `train`, by which two are compared.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "bench/cli/statistics.h"
#include "bench/commands/commands.h"
#include "bench/measure/row.h"
#include "bench/report/record.h"

namespace hs::test {

using bench::Json;

inline const bench::cli::Flags& train_flags() {
  static const bench::commands::TrainFlags flags;
  return flags;
}

// Times around `center`, spread by a few tenths of a percent; `phase` selects the noise.
inline std::vector<double> times(double center, int count, double phase = 0) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) all.push_back(center * (1 + 0.005 * std::sin(2.4 * i + phase)));
  return all;
}

inline Json row(const std::string& name, const std::string& group, const std::vector<double>& seconds) {
  std::vector<double> accuracies(seconds.size(), 0.97);
  Json runs = Json::array();
  const Json epochs = {{{"training_loss", 0.3}, {"test_loss", 0.2}, {"test_accuracy", 0.95}, {"seconds", 1.0}},
                       {{"training_loss", 0.2}, {"test_loss", 0.1}, {"test_accuracy", 0.97}, {"seconds", 1.0}}};
  for (size_t i = 0; i < seconds.size(); ++i) {
    runs.push_back({{"seed", i + 1},
                    {"evaluation_seconds", 0.1},
                    {"steps", 100},
                    {"skipped_steps", 0},
                    {"loss_scale", 1.0},
                    {"epochs", epochs}});
  }
  const bench::Interval interval = bench::median_interval(seconds);
  return {{"name", name},
          {"seconds", bench::median(seconds)},
          {"seconds_low", bench::finite_or_null(interval.low)},
          {"seconds_high", bench::finite_or_null(interval.high)},
          {"seconds_all", seconds},
          {"samples_per_second", 8000 / bench::median(seconds)},
          {"stall_share", nullptr},
          {"test_accuracy", 0.97},
          {"test_accuracy_all", accuracies},
          {"final_loss", 0.2},
          {"peak_bytes", 9463040},
          {"epochs", epochs},
          {"runs", runs},
          {"group", group}};
}

// A valid record of `techniques` with three rows.
inline Json good_record() {
  Json record = bench::report::new_record("techniques", Device::cpu);
  record["environment"]["commit"] = "0123456789ab";
  record["data"] = {{"name", "mnist"}, {"synthetic", false}, {"train", 4000}, {"test", 1000}, {"source", "mnist"}};
  record["config"] = {{"model", "mnist_cnn"},
                      {"epochs", 2},
                      {"batch", 64},
                      {"optimizer", "adam"},
                      {"learning_rate", 1e-3},
                      {"seed", 1},
                      {"schedule", "constant"},
                      {"warmup", 0},
                      {"interleaved", true},
                      {"warmed_up", true},
                      {"target", "accuracy=0.96"},
                      {"price_per_hour", nullptr}};
  record["rows"] = {row("baseline", "baseline", times(2, 5)), row("mixed precision (bf16)", "alone", times(1, 5, 1)),
                    row("accumulation (4 x 16)", "alone", times(2.004, 5, 2)),
                    row("accumulation (4 x 16)", "cumulative", times(1.2, 5, 3))};
  bench::measure::add_comparisons(record["rows"]);
  record["rows"][2]["for_memory"] = record["rows"][3]["for_memory"] = true;
  record["rows"][2]["peak_bytes"] = 4731520;
  record["rows"][2]["bytes_ratio"] = 0.5;
  record["rows"][1]["experiment"] = {{"precision", "bf16"}, {"batch", 64}, {"accumulate", 1}, {"graph", false}};
  record["absent"] = {{{"name", "graph"}, {"reason", "cpu captures no graphs"}}};
  return record;
}

}  // namespace hs::test
