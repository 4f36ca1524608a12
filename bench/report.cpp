#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "bench/environment.h"

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

Json finite_or_null(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) all.push_back(bench::finite_or_null(value));
  return all;
}

// Columns as wide as their widest cell; the first is aligned left, the others right.
std::string aligned(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("{:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    text += "\n";
  }
  return text;
}

// Means of the repeats, in seconds.
Json parts_of(const Row& row) {
  const auto seconds = [&](double StepSeconds::*part) {
    return bench::finite_or_null(mean(of_runs(row, [part](const TrainResult& r) { return r.parts.*part; })));
  };
  return {{"wait", seconds(&StepSeconds::wait)},       {"upload", seconds(&StepSeconds::upload)},
          {"forward", seconds(&StepSeconds::forward)}, {"backward", seconds(&StepSeconds::backward)},
          {"update", seconds(&StepSeconds::update)},   {"replay", seconds(&StepSeconds::replay)}};
}

std::string mebibytes(size_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double stall_share(const Row& row) {
  const std::vector<double> waits = of_runs(row, [](const TrainResult& r) { return r.parts.wait; });
  const std::vector<double> seconds = of_runs(row, [](const TrainResult& r) { return r.seconds; });
  return mean(waits) / mean(seconds);
}

Json to_json(const Row& row) {
  const Figures figures(row);
  Json epochs = Json::array(), resident = Json::array(), hashes = Json::array();
  for (const RunRecord& run : row.runs) hashes.push_back(run.weights_sha256);
  if (!row.runs.empty()) {
    resident = row.runs[0].resident_bytes_by_epoch;
    for (const EpochResult& epoch : row.runs[0].result.epochs) {
      epochs.push_back({{"training_loss", bench::finite_or_null(epoch.training_loss)},
                        {"test_loss", bench::finite_or_null(epoch.test.loss)},
                        {"test_accuracy", bench::finite_or_null(epoch.test.accuracy)},
                        {"seconds", epoch.seconds}});
    }
  }
  Json json = {
      {"name", row.name},
      {"seconds", bench::finite_or_null(median(figures.seconds))},
      {"seconds_all", finite_or_null(figures.seconds)},
      {"samples_per_second", bench::finite_or_null(figures.samples_per_second)},
      {"test_accuracy", bench::finite_or_null(mean(figures.accuracies))},
      {"test_accuracy_all", finite_or_null(figures.accuracies)},
      {"final_loss", bench::finite_or_null(mean(figures.losses))},
      {"peak_bytes", row.runs.empty() ? Json(nullptr) : Json(figures.peak_bytes)},
      {"peak_resident_bytes", peak_resident_bytes()},
      {"resident_bytes_by_epoch", resident},
      {"parts", parts_of(row)},
      {"stall_share", bench::finite_or_null(stall_share(row))},
      {"weights_sha256", hashes.empty() ? Json(nullptr) : hashes[0]},
      {"weights_sha256_all", hashes},
      {"epochs", epochs},
  };
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

std::string to_table(const Row& row, const std::string& data_name) {
  const Figures figures(row);
  std::vector<std::vector<std::string>> lines = {
      {"data", "run", "seed", "seconds", "samples/s", "accuracy", "final loss", "peak MiB", "weights"}};
  const auto add = [&](const std::string& run, const std::string& seed, double seconds, double rate, double accuracy,
                       double loss, size_t peak, const std::string& weights) {
    lines.push_back({data_name, run, seed, fmt::format("{:.3f}", seconds), fmt::format("{:.0f}", rate),
                     fmt::format("{:.2f} %", accuracy * 100), fmt::format("{:.4f}", loss), mebibytes(peak), weights});
  };
  for (size_t i = 0; i < row.runs.size(); ++i) {
    const RunRecord& run = row.runs[i];
    add(std::to_string(i + 1), std::to_string(run.seed), figures.seconds[i],
        static_cast<double>(run.result.samples) / figures.seconds[i], figures.accuracies[i], figures.losses[i],
        run.peak_bytes, run.weights_sha256.substr(0, 12));
  }
  add("summary", "-", median(figures.seconds), figures.samples_per_second, mean(figures.accuracies),
      mean(figures.losses), figures.peak_bytes, "-");
  return aligned(lines);
}

}  // namespace hs::bench
