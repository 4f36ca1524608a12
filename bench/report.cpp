#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/environment.h"
#include "bench/statistics.h"
#include "bench/table.h"

namespace hs::bench {
namespace {

std::vector<double> of_runs(const Row& row, const std::function<double(const TrainResult&)>& figure) {
  std::vector<double> values;
  for (const RunRecord& run : row.runs) values.push_back(figure(run.result));
  return values;
}

struct Figures {
  std::vector<double> seconds, accuracies, losses;
  double samples_per_second;
  size_t peak_bytes = 0;

  explicit Figures(const Row& row)
      : seconds(of_runs(row, [](const TrainResult& r) { return r.seconds; })),
        accuracies(of_runs(row, [](const TrainResult& r) { return r.epochs.back().test.accuracy; })),
        losses(of_runs(row, [](const TrainResult& r) { return r.epochs.back().training_loss; })) {
    samples_per_second = row.runs.empty() ? NAN : static_cast<double>(row.runs[0].result.samples) / median(seconds);
    for (const RunRecord& run : row.runs) peak_bytes = std::max(peak_bytes, run.peak_bytes);
  }
};

Json epochs_to_json(const TrainResult& result) {
  Json epochs = Json::array();
  for (const EpochResult& epoch : result.epochs) {
    epochs.push_back({{"training_loss", finite_or_null(epoch.training_loss)},
                      {"test_loss", finite_or_null(epoch.test.loss)},
                      {"test_accuracy", finite_or_null(epoch.test.accuracy)},
                      {"seconds", epoch.seconds},
                      {"evaluation_seconds", epoch.evaluation_seconds}});
  }
  return epochs;
}

Json run_to_json(const RunRecord& run) {
  double evaluation = 0;
  for (const EpochResult& epoch : run.result.epochs) evaluation += epoch.evaluation_seconds;
  return {{"seed", run.seed},
          {"evaluation_seconds", evaluation},
          {"steps", run.result.steps},
          {"skipped_steps", run.result.skipped_steps},
          {"loss_scale", finite_or_null(run.result.loss_scale)},
          {"energy_joules", finite_or_null(run.joules)},
          {"epochs", epochs_to_json(run.result)}};
}

// Means of the runs, in seconds.
Json parts_of(const Row& row) {
  const auto seconds = [&](double StepSeconds::*part) {
    return finite_or_null(mean(of_runs(row, [part](const TrainResult& r) { return r.parts.*part; })));
  };
  return {{"wait", seconds(&StepSeconds::wait)},       {"upload", seconds(&StepSeconds::upload)},
          {"forward", seconds(&StepSeconds::forward)}, {"backward", seconds(&StepSeconds::backward)},
          {"update", seconds(&StepSeconds::update)},   {"replay", seconds(&StepSeconds::replay)}};
}

}  // namespace

double stall_share(const Row& row) {
  const std::vector<double> waits = of_runs(row, [](const TrainResult& r) { return r.parts.wait; });
  const std::vector<double> seconds = of_runs(row, [](const TrainResult& r) { return r.seconds; });
  return mean(waits) / mean(seconds);
}

Json to_json(const Row& row) {
  const Figures figures(row);
  const Interval interval = median_interval(figures.seconds);
  std::vector<double> joules;
  Json resident = Json::array(), hashes = Json::array(), runs = Json::array();
  for (const RunRecord& run : row.runs) {
    hashes.push_back(run.weights_sha256);
    runs.push_back(run_to_json(run));
    joules.push_back(run.joules);
  }
  if (!row.runs.empty()) resident = row.runs[0].resident_bytes_by_epoch;
  Json json = {
      {"name", row.name},
      {"seconds", finite_or_null(median(figures.seconds))},
      {"seconds_low", finite_or_null(interval.low)},
      {"seconds_high", finite_or_null(interval.high)},
      {"seconds_all", finite_or_null(figures.seconds)},
      {"samples_per_second", finite_or_null(figures.samples_per_second)},
      {"stall_share", finite_or_null(stall_share(row))},
      {"test_accuracy", finite_or_null(mean(figures.accuracies))},
      {"test_accuracy_all", finite_or_null(figures.accuracies)},
      {"final_loss", finite_or_null(mean(figures.losses))},
      {"peak_bytes", row.runs.empty() ? Json(nullptr) : Json(figures.peak_bytes)},
      {"peak_resident_bytes", peak_resident_bytes()},
      {"resident_bytes_by_epoch", resident},
      {"energy_joules", finite_or_null(mean(joules))},
      {"parts", parts_of(row)},
      {"weights_sha256", hashes.empty() ? Json(nullptr) : hashes[0]},
      {"weights_sha256_all", hashes},
      {"epochs", row.runs.empty() ? Json::array() : epochs_to_json(row.runs[0].result)},
      {"runs", runs},
  };
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

void add_comparison(Json& row, const Json& baseline) {
  const std::vector<double> before = numbers(baseline, "seconds_all"), after = numbers(row, "seconds_all");
  const double speed_up = median(before) / median(after);
  const Interval interval = ratio_interval(before, after);
  row["speed_up"] = finite_or_null(speed_up);
  row["speed_up_low"] = finite_or_null(interval.low);
  row["speed_up_high"] = finite_or_null(interval.high);
  row["verdict"] = after.size() < 3       ? "too few runs to tell"
                   : interval.contains(1) ? "within noise"
                   : speed_up > 1         ? "faster"
                                          : "slower";
  row["bytes_ratio"] = finite_or_null(number(row, "peak_bytes") / number(baseline, "peak_bytes"));
}

std::string to_table(const Row& row, const std::string& data_name) {
  const Figures figures(row);
  Table table = {{"data", "run", "seed", "seconds", "samples/s", "accuracy", "final loss", "peak MiB", "weights"}, {}};
  const auto add = [&](const std::string& run, const std::string& seed, double seconds, double rate, double accuracy,
                       double loss, size_t peak, const std::string& weights) {
    table.lines.push_back({data_name, run, seed, fmt::format("{:.3f}", seconds), fmt::format("{:.0f}", rate),
                           fmt::format("{:.2f} %", accuracy * 100), fmt::format("{:.4f}", loss), mebibytes(peak),
                           weights});
  };
  for (size_t i = 0; i < row.runs.size(); ++i) {
    const RunRecord& run = row.runs[i];
    add(std::to_string(i + 1), std::to_string(run.seed), figures.seconds[i],
        static_cast<double>(run.result.samples) / figures.seconds[i], figures.accuracies[i], figures.losses[i],
        run.peak_bytes, run.weights_sha256.substr(0, 12));
  }
  add("summary", "-", median(figures.seconds), figures.samples_per_second, mean(figures.accuracies),
      mean(figures.losses), figures.peak_bytes, "-");
  return to_text(table);
}

}  // namespace hs::bench
