#include "bench/measure/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/cli/environment.h"
#include "bench/report/table.h"

namespace hs::bench::measure {
namespace {

Json epoch_to_json(const EpochResult& epoch) {
  return {{"training_loss", finite_or_null(epoch.training_loss)},
          {"test_loss", finite_or_null(epoch.test.loss)},
          {"test_accuracy", finite_or_null(epoch.test.accuracy)},
          {"seconds", epoch.seconds},
          {"evaluation_seconds", epoch.evaluation_seconds}};
}

Json validation_to_json(const Validation& v) {
  return {{"epoch", v.epoch},
          {"step", v.step},
          {"training_seconds", finite_or_null(v.training_seconds)},
          {"accuracy", v.result.accuracy},
          {"loss", finite_or_null(v.result.loss)},
          {"seconds", v.seconds}};
}

// The steps, counted from 1, after which the loss scale changed, with the new scale.
Json scale_history(const TrainResult& result) {
  Json changes = Json::array();
  float scale = GradScalerConfig().initial;
  for (size_t step = 0; step < result.loss_scales.size(); ++step) {
    if (result.loss_scales[step] == scale) continue;
    scale = result.loss_scales[step];
    changes.push_back({{"after_step", step + 1}, {"scale", scale}});
  }
  return {{"first", GradScalerConfig().initial}, {"changes", changes}, {"last", scale}};
}

Json run_to_json(const RunRecord& run) {
  double evaluation = 0;
  for (const EpochResult& epoch : run.result.epochs) evaluation += epoch.evaluation_seconds;
  return {{"seed", run.seed},
          {"evaluation_seconds", evaluation},
          {"steps", run.result.steps},
          {"skipped_steps", run.result.skipped_steps},
          {"loss_scale", finite_or_null(run.result.loss_scale)},
          {"epochs", mapped(run.result.epochs, epoch_to_json)},
          {"validations", mapped(run.result.validations, validation_to_json)},
          {"loader", run.loading ? run.loading->to_json() : Json(nullptr)},
          {"kept", run.result.kept.empty() ? Json(nullptr) : Json(run.result.kept)},
          {"ended_early", run.result.ended_early.empty() ? Json(nullptr) : Json(run.result.ended_early)}};
}

Json parts_of(const StepSeconds& parts) {
  return {{"wait", parts.wait},         {"upload", parts.upload}, {"forward", parts.forward},
          {"backward", parts.backward}, {"update", parts.update}, {"exchange", parts.exchange},
          {"replay", parts.replay},     {"save", parts.save}};
}

// The loss, and the shares of each interval between two points; the first interval begins with the run.
Json course_of(const RunRecord& run) {
  const auto computing = [](const StepSeconds& parts) {
    return parts.forward + parts.backward + parts.update + parts.replay;
  };
  Json course = Json::array();
  CoursePoint last{};
  for (const CoursePoint& point : run.course) {
    const double seconds = point.seconds - last.seconds;
    course.push_back({{"seconds", point.seconds},
                      {"loss", finite_or_null(point.loss)},
                      {"wait", (point.parts.wait - last.parts.wait) / seconds},
                      {"compute", (computing(point.parts) - computing(last.parts)) / seconds}});
    last = point;
  }
  return course;
}

// The bytes that the stage's tape keeps until backward.
int64_t kept_bytes(const StageCost& stage) {
  return stage.saved + (stage.saves_input ? stage.input : 0) + (stage.saves_output ? stage.output : 0);
}

// The number, from 1, of the segment with stage i; 0: the stage is not checkpointed.
size_t segment_of(const CheckpointPlan& plan, size_t i) {
  const auto found = std::ranges::find_if(plan.segments, [i](const Segment& s) { return s.begin <= i && i < s.end; });
  return found == plan.segments.end() ? 0 : static_cast<size_t>(found - plan.segments.begin()) + 1;
}

report::Rows stages_of(const CheckpointPlan& plan, const std::string& data_name) {
  report::Rows rows{.table = {.left = 2}};
  for (size_t i = 0; i < plan.costs.stages.size(); ++i) {
    const StageCost& stage = plan.costs.stages[i];
    const size_t segment = segment_of(plan, i);
    rows.add({{"", data_name, "data"},
              {"name", stage.name, "stage"},
              {"input_bytes", stage.input, "input MiB", "{:.1f}", report::to_mebibytes},
              {"saved_bytes", kept_bytes(stage), "saved MiB", "{:.1f}", report::to_mebibytes},
              {"forward_ms", stage.forward_ms, "forward ms", "{:.2f}"},
              {"backward_ms", stage.backward_ms, "backward ms", "{:.2f}"},
              {"recomputed", segment != 0},
              {"", segment ? fmt::format("recomputed, segment {}", segment) : "kept", "plan"}});
  }
  return rows;
}

void put(Json& object, const std::string& name, double value, const Interval& interval) {
  object[name] = finite_or_null(value);
  object[name + "_low"] = finite_or_null(interval.low);
  object[name + "_high"] = finite_or_null(interval.high);
}

}  // namespace

void put_median(Json& object, const std::string& name, const std::vector<double>& values) {
  put(object, name, median(values), median_interval(values));
}

Json to_json(const RunRecord& run, const Goal& goal) {
  const TrainResult& result = run.result;
  const EpochResult last = result.epochs.empty() ? EpochResult() : result.epochs.back();
  Json json;
  put_median(json, "seconds", {result.seconds});
  json.update({
      {"seconds_all", Json::array({result.seconds})},
      {"samples_per_second", finite_or_null(static_cast<double>(result.samples) / result.seconds)},
      {"stall_share", finite_or_null(result.parts.wait / result.seconds)},
      {"test_accuracy", finite_or_null(last.test.accuracy)},
      {"test_accuracy_all", Json::array({finite_or_null(last.test.accuracy)})},
      {"final_loss", finite_or_null(last.training_loss)},
      {"trained_parameters", run.trained_parameters},
      {"peak_bytes", run.peak_bytes},
      {"resident_bytes_by_epoch", run.resident_bytes_by_epoch},
      {"parts", parts_of(result.parts)},
      {"course", course_of(run)},
      {"weights_sha256", run.weights_sha256},
      {"weights_sha256_all", Json::array({run.weights_sha256})},
      {"checkpoint_plan", run.plan ? to_json(*run.plan) : Json(nullptr)},
      {"epochs", mapped(result.epochs, epoch_to_json)},
      {"runs", Json::array({run_to_json(run)})},
  });
  if (!result.loss_scales.empty()) {
    json["steps"] = result.loss_scales.size();
    json["scale"] = scale_history(result);
  }
  if (run.noise) {
    json["noise"] = {{"samples", finite_or_null(run.noise->samples())},
                     {"trace", finite_or_null(run.noise->trace())},
                     {"squared_norm", finite_or_null(run.noise->squared_norm())},
                     {"steps", run.noise->steps()}};
  }
  add_goal(json, run, goal);
  return json;
}

Json to_json(const Row& row, const Goal& goal, int64_t lost) {
  Json json = {{"name", row.name}, {"peak_resident_bytes", cli::peak_resident_bytes()}};
  json.update(merge_rows(mapped(row.runs, [&](const RunRecord& run) { return to_json(run, goal); }), lost));
  if (row.runs.empty()) {
    RunRecord none;
    none.result.seconds = NAN;
    add_goal(json, none, goal);
    if (goal.target) json["target"]["seconds_all"] = Json::array();
  }
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

Json segment_to_json(const Segment& segment) { return {{"begin", segment.begin}, {"end", segment.end}}; }

Json to_json(const CheckpointPlan& plan) {
  return {{"stages", stages_of(plan, "").json},
          {"segments", mapped(plan.segments, segment_to_json)},
          {"fixed_bytes", plan.costs.fixed},
          {"predicted_peak_bytes", plan.predicted.peak},
          {"measuring_peak_bytes", plan.costs.measuring_peak},
          {"step_ms", plan.costs.milliseconds()},
          {"extra_ms", plan.predicted.extra_ms}};
}

Json merge_rows(const Json& rows, int64_t lost) {
  if (rows.empty()) {
    Json none = to_json(RunRecord(), Goal());
    for (Json& value : none) value = value.is_array() ? Json::array() : Json(nullptr);
    return none;
  }
  const auto all = [&](const char* part, const std::string& name) {
    return mapped(rows,
                  [&](const Json& row) { return report::number(*part ? report::part(row, part) : row, name.c_str()); });
  };
  const auto finite = [&](const char* part, const std::string& name) {
    std::vector<double> values = all(part, name);
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    return values;
  };
  Json merged = rows[0];
  if (merged.contains("course")) merged["course"] = report::member(rows.back(), "course");
  for (const char* list : {"seconds_all", "test_accuracy_all", "weights_sha256_all", "runs"}) {
    for (size_t i = 1; i < rows.size(); ++i) {
      for (const Json& each : report::member(rows[i], list)) merged[list].push_back(each);
    }
  }
  for (const char* name : {"test_accuracy", "final_loss", "warmup_seconds"}) {
    if (merged.contains(name)) merged[name] = finite_or_null(mean(all("", name)));
  }
  for (const char* part : {"parts", "target", "cost"}) {
    const Json& first = report::part(rows[0], part);
    for (const auto& [name, value] : first.items()) {
      const bool is_mean = part == std::string("parts") || name == "reached_share";
      if (value.is_structured() || value.is_string()) continue;
      merged[part][name] = finite_or_null(is_mean ? mean(finite(part, name)) : median(finite(part, name)));
    }
  }
  if (report::part(rows[0], "target").is_object()) {
    const auto runs = static_cast<double>(rows.size());
    Json& target = merged["target"];
    const std::vector<double> best = finite("target", "best");
    target["reached_share"] = report::number(target, "reached_share") * runs / (runs + static_cast<double>(lost));
    target["seconds_all"] = finite_or_null(all("target", "seconds"));
    put_median(target, "seconds", finite("target", "seconds"));
    if (!best.empty()) target["best"] = target.contains("loss") ? std::ranges::min(best) : std::ranges::max(best);
    if (merged.contains("cost")) put_median(merged["cost"], "to_target", finite("cost", "to_target"));
  }
  put_median(merged, "seconds", all("", "seconds"));
  merged["samples_per_second"] = finite_or_null(median(all("", "samples_per_second")));
  if (merged.contains("stall_share")) {
    merged["stall_share"] =
        finite_or_null(report::number(report::part(merged, "parts"), "wait") / mean(all("", "seconds")));
  }
  const std::vector<double> peaks = finite("", "peak_bytes");
  if (!peaks.empty()) merged["peak_bytes"] = static_cast<int64_t>(std::ranges::max(peaks));
  return merged;
}

std::string plan_table(const Row& row, const std::string& data_name) {
  if (row.runs.empty() || !row.runs[0].plan) return "";
  const CheckpointPlan& plan = *row.runs[0].plan;
  const double peak = static_cast<double>(row.runs[0].peak_bytes), predicted = static_cast<double>(plan.predicted.peak);
  return fmt::format(
      "\n{}{}  peak predicted {:.1f} MiB, measured {:.1f} MiB ({:+.1f} %); time predicted {:+.1f} %; measuring took "
      "{:.1f} MiB\n",
      to_text(stages_of(plan, data_name).table), data_name, predicted / (1 << 20), peak / (1 << 20),
      (peak / predicted - 1) * 100, plan.predicted.extra_ms / plan.costs.milliseconds() * 100,
      static_cast<double>(plan.costs.measuring_peak) / (1 << 20));
}

std::string noise_line(const Row& row, const std::string& data_name) {
  if (row.runs.empty() || !row.runs[0].noise || row.runs[0].noise->steps() == 0) return "";
  const NoiseScale& noise = *row.runs[0].noise;
  return fmt::format("{}  gradient noise scale {:.0f} samples over {} steps of {}: {}\n", data_name, noise.samples(),
                     noise.steps(), noise.step(),
                     noise.samples() > static_cast<double>(noise.step())
                         ? "a larger step has a better gradient, by fewer steps"
                         : "a larger step repeats what this one has seen");
}

SpeedUp speed_up(const std::vector<double>& before, const std::vector<double>& after, size_t verdicts) {
  const double ratio = median(before) / median(after), error = page_error / static_cast<double>(verdicts);
  const double probability = ratio_probability(before, after);
  return {ratio, ratio_interval(before, after, error),
          probability > error || std::isnan(probability + ratio) ? cannot_tell(after.size(), probability, error, 3)
          : ratio > 1                                            ? "faster"
                                                                 : "slower"};
}

std::string SpeedUp::text() const {
  const std::string times = fmt::format("{:.2f} times as fast", ratio);
  return std::isfinite(interval.low) ? fmt::format("{}, {:.2f} to {:.2f}", times, interval.low, interval.high) : times;
}

Json SpeedUp::to_json() const {
  Json json;
  put(json, "ratio", ratio, interval);
  return json;
}

size_t verdicts_of(const Json& rows) {
  const auto is_switch = [](const Json& row) {
    const bool is_on = report::flag(row, "on_by_default") || report::flag(row, "for_memory");
    return !is_on && report::text(row, "group") == "cumulative";
  };
  return std::max<size_t>(rows.size(), 2) - 1 + static_cast<size_t>(std::ranges::count_if(rows, is_switch));
}

void add_comparisons(Json& rows) {
  const Json baseline = rows[0];
  const auto failed = [](const Json& row) { return row.contains("error"); };
  const size_t verdicts = verdicts_of(rows);
  for (size_t i = 1; i < rows.size() && !failed(baseline); ++i) {
    Json& row = rows[i];
    if (failed(row)) continue;
    const SpeedUp gain =
        speed_up(report::numbers(baseline, "seconds_all"), report::numbers(row, "seconds_all"), verdicts);
    put(row, "speed_up", gain.ratio, gain.interval);
    row["verdict"] = gain.verdict;
    row["bytes_ratio"] = finite_or_null(report::number(row, "peak_bytes") / report::number(baseline, "peak_bytes"));
  }
}

std::string to_table(const Row& row, const std::string& data_name) {
  report::Table table = {
      {"data", "run", "seed", "seconds", "samples/s", "accuracy", "final loss", "peak MiB", "weights"}, {}};
  const auto add = [&](const std::string& run, const std::string& seed, const Json& figures,
                       const std::string& weights) {
    const auto number = [&](const char* name) { return report::number(figures, name); };
    table.lines.push_back({data_name, run, seed, fmt::format("{:.3f}", number("seconds")),
                           fmt::format("{:.0f}", number("samples_per_second")),
                           fmt::format("{:.2f} %", number("test_accuracy") * 100),
                           fmt::format("{:.4f}", number("final_loss")),
                           report::mebibytes(static_cast<size_t>(number("peak_bytes"))), weights});
  };
  for (const RunRecord& run : row.runs) {
    const std::string number = std::to_string(table.lines.size() + 1);
    add(number, std::to_string(run.seed), to_json(run, Goal()), run.weights_sha256.substr(0, 12));
  }
  add("summary", "-", to_json(row), "-");
  return to_text(table);
}

}  // namespace hs::bench::measure
