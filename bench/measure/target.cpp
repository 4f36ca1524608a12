#include "bench/measure/target.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "bench/cli/statistics.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::measure {

void Goal::declare(cli::Flags& flags) {
  const auto unless_zero = [](const double& value) {
    return [&value] { return value > 0 ? Json(value) : Json(nullptr); };
  };
  flags.real("--target-accuracy", accuracy, 0, 1, "Report the time to this test accuracy; 0: none")
      .record("target_accuracy", unless_zero(accuracy));
  flags.real("--price-per-hour", price_per_hour, 0, 1e6, "What the machine costs per hour; 0: not reported")
      .record("price_per_hour", unless_zero(price_per_hour));
}

std::optional<Reached> reached(const TrainResult& result, double accuracy) {
  Reached so_far{0, 0, 0};
  for (const EpochResult& epoch : result.epochs) {
    ++so_far.epoch;
    so_far.training_seconds += epoch.seconds;
    so_far.evaluation_seconds += epoch.evaluation_seconds;
    if (epoch.test.accuracy >= accuracy) return so_far;
  }
  return std::nullopt;
}

void add_goal(Json& row, const std::vector<RunRecord>& runs, const Goal& goal) {
  std::vector<double> training, evaluation, epochs, run_seconds;
  for (const RunRecord& run : runs) {
    double evaluated = 0;
    for (const EpochResult& epoch : run.result.epochs) evaluated += epoch.evaluation_seconds;
    run_seconds.push_back(run.result.seconds + evaluated);
    const std::optional<Reached> first = reached(run.result, goal.accuracy);
    if (!first) continue;
    training.push_back(first->training_seconds);
    evaluation.push_back(first->evaluation_seconds);
    epochs.push_back(static_cast<double>(first->epoch));
  }
  const double share = static_cast<double>(training.size()) / static_cast<double>(runs.size());
  if (goal.accuracy > 0) {
    row["target"] = {{"accuracy", goal.accuracy},
                     {"reached_share", finite_or_null(share)},
                     {"seconds", finite_or_null(mean(training))},
                     {"evaluation_seconds", finite_or_null(mean(evaluation))},
                     {"epochs", finite_or_null(mean(epochs))}};
  }
  if (goal.price_per_hour > 0) {
    const double per_second = goal.price_per_hour / 3600;
    row["cost"] = {{"per_run", finite_or_null(mean(run_seconds) * per_second)}, {"to_target", nullptr}};
    if (goal.accuracy > 0) {
      row["cost"]["to_target"] = finite_or_null((mean(training) + mean(evaluation)) * per_second);
    }
  }
}

std::string goal_line(const Json& row, const std::string& data_name) {
  const Json &target = report::member(row, "target"), &cost = report::member(row, "cost");
  std::vector<std::string> parts;
  if (target.is_object()) {
    parts.push_back(fmt::format("target {:.2f} %: reached by {:.0f} % of the runs",
                                report::number(target, "accuracy") * 100,
                                report::number(target, "reached_share") * 100));
    if (report::number(target, "reached_share") > 0) {
      parts.push_back(fmt::format("after {:.3f} s of training and {:.3f} s of evaluation",
                                  report::number(target, "seconds"), report::number(target, "evaluation_seconds")));
    }
  }
  if (cost.is_object()) parts.push_back(fmt::format("cost of a run {:.3g}", report::number(cost, "per_run")));
  if (report::member(cost, "to_target").is_number()) {
    parts.push_back(fmt::format("cost to the target {:.3g}", report::number(cost, "to_target")));
  }
  return parts.empty() ? "" : fmt::format("{}  {}\n", data_name, fmt::join(parts, ", "));
}

void check_goal(const Json& rows, const Goal& goal) {
  if (goal.accuracy <= 0) return;
  for (const Json& row : rows) {
    const Json& target = report::member(row, "target");
    if (!target.is_object() || report::number(target, "reached_share") >= 1) continue;
    fail(ExitCode::missed, "--target-accuracy {}: {} reached it in {:.0f} % of its runs; best final accuracy {}",
         goal.accuracy, report::text(row, "name"), report::number(target, "reached_share") * 100,
         report::member(row, "test_accuracy_all").empty()
             ? 0.0
             : std::ranges::max(report::numbers(row, "test_accuracy_all")));
  }
}

}  // namespace hs::bench::measure
