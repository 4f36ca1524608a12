#include "bench/measure/peers.h"

#include <cmath>

#include "bench/cli/statistics.h"
#include "bench/measure/row.h"
#include "bench/report/record.h"

namespace hs::bench::measure {
namespace {

double mean_of(const Json& runs, const char* name) {
  std::vector<double> values;
  for (const Json& run : runs) values.push_back(report::number(run, name));
  return mean(values);
}

Json summarize(const Json& measured) {
  const Json& runs = report::objects(measured, "runs");
  const bool is_ours = report::text(measured, "engine").starts_with("halfstep");  // and halfstep_mpi
  std::vector<double> seconds, accuracies;
  Json all_runs = Json::array();
  double peak = NAN, samples = NAN;
  for (const Json& run : runs) {
    seconds.push_back(report::number(run, "seconds"));
    accuracies.push_back(report::number(run, "test_accuracy"));
    samples = report::number(run, "samples_per_second") * seconds.back();
    peak = std::fmax(peak, report::number(run, "peak_bytes"));
    for (const Json& each : report::member(run, "runs")) all_runs.push_back(each);
  }
  const Interval interval = median_interval(seconds);
  Json row = {
      {"name", measured["name"]},
      {"group", is_ours ? "halfstep" : "peer"},
      {"engine", measured["engine"]},
      {"precision", measured["precision"]},
      {"flags", measured["flags"]},
      {"seconds", finite_or_null(median(seconds))},
      {"seconds_low", finite_or_null(interval.low)},
      {"seconds_high", finite_or_null(interval.high)},
      {"seconds_all", finite_or_null(seconds)},
      {"samples_per_second", finite_or_null(samples / median(seconds))},
      {"warmup_seconds", finite_or_null(mean_of(runs, "warmup_seconds"))},
      {"test_accuracy", finite_or_null(mean(accuracies))},
      {"test_accuracy_all", finite_or_null(accuracies)},
      {"final_loss", finite_or_null(mean_of(runs, "final_loss"))},
      {"peak_bytes", std::isfinite(peak) ? Json(static_cast<int64_t>(peak)) : Json(nullptr)},
  };
  if (is_ours) row["epochs"] = all_runs.empty() ? Json::array() : all_runs[0]["epochs"];
  if (is_ours) row["runs"] = all_runs;
  if (measured.contains("error")) row["error"] = measured["error"];
  return row;
}

void add_ratios(Json& rows) {
  for (Json& row : rows) {
    if (report::text(row, "group") != "peer" || row.contains("error")) continue;
    const Json* fastest = nullptr;
    for (const Json& other : rows) {
      if (report::text(other, "group") != "halfstep" || other.contains("error")) continue;
      if (other["precision"] != row["precision"]) continue;
      if (!fastest || report::number(other, "seconds") < report::number(*fastest, "seconds")) fastest = &other;
    }
    if (!fastest) continue;
    const std::vector<double> theirs = report::numbers(row, "seconds_all"),
                              base = report::numbers(*fastest, "seconds_all");
    const double ratio = median(theirs) / median(base);
    const Interval interval = ratio_interval(theirs, base);
    row["ratio"] = ratio;
    row["ratio_low"] = finite_or_null(interval.low);
    row["ratio_high"] = finite_or_null(interval.high);
    row["compared_with"] = report::text(*fastest, "name");
    row["verdict"] = verdict(ratio, interval, theirs.size(), "slower", "faster");
  }
}

}  // namespace

Json peer_rows(const Json& measured) {
  Json rows = Json::array();
  for (const Json& row : measured) rows.push_back(summarize(row));
  add_ratios(rows);
  return rows;
}

}  // namespace hs::bench::measure
