#include "bench/measure/target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/measure/row.h"
#include "bench/report/table.h"
#include "engine/check.h"
#include "engine/parsed_number.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

Target parse_target(const std::string& text) {
  const size_t sign = std::min(text.find('='), text.size() - 1);
  const std::string metric = text.substr(0, sign);
  const bool is_loss = metric == "loss";
  const double value = parsed_number<double>(text.substr(sign + 1)).value_or(0), most = is_loss ? 1e6 : 1;
  if ((metric != "accuracy" && !is_loss) || !(value > 0 && value <= most)) {
    fail(ExitCode::usage, "--target {}: expected accuracy=NUMBER, above 0 and up to 1, or loss=NUMBER, above 0", text);
  }
  return {.is_loss = is_loss, .value = value};
}

std::string text_of(const Target& target) {
  return fmt::format("{}={:g}", target.is_loss ? "loss" : "accuracy", target.value);
}

// What a run is judged by, in its order. Seconds are until then; those of evaluation include this one.
struct Judgement {
  Evaluation result;
  double epoch;  // from 1
  double training_seconds, evaluation_seconds;
};

std::vector<Judgement> judgements_of(const TrainResult& result) {
  std::vector<Judgement> all;
  double training = 0, evaluation = 0;
  for (const Validation& v : result.validations) {
    evaluation += v.seconds;
    all.push_back({v.result, static_cast<double>(v.epoch), v.training_seconds, evaluation});
  }
  if (!all.empty()) return all;
  for (const EpochResult& epoch : result.epochs) {
    training += epoch.seconds;
    evaluation += epoch.evaluation_seconds;
    all.push_back({epoch.test, static_cast<double>(all.size() + 1), training, evaluation});
  }
  return all;
}

// "12.3 s (11.0 to 14.2)"
std::string with_interval(const Json& of, const char* name, const char* format, const char* unit = "") {
  const std::string low = std::string(name) + "_low", high = std::string(name) + "_high";
  const auto shown = [&](const std::string& member) {
    return report::shown({"", report::number(of, member.c_str()), "", format});
  };
  std::string text = shown(name) + unit;
  if (std::isfinite(report::number(of, low.c_str()))) text += fmt::format(" ({} to {})", shown(low), shown(high));
  return text;
}

void add_target(Json& row, const RunRecord& run, const Target& target, double price_per_second) {
  const std::vector<Judgement> judgements = judgements_of(run.result);
  std::vector<double> values;
  for (const Judgement& judgement : judgements) {
    const double value = target.is_loss ? judgement.result.loss : judgement.result.accuracy;
    if (std::isfinite(value)) values.push_back(value);
  }
  const auto reaches = [&](const Judgement& judgement) { return target.is_reached_by(judgement.result); };
  const auto first = std::ranges::find_if(judgements, reaches);
  const bool is_reached = first != judgements.end();
  const Judgement then = is_reached ? *first : Judgement{{NAN, NAN}, NAN, NAN, NAN};
  Json& judged = row["target"];
  judged = {{target.is_loss ? "loss" : "accuracy", target.value},
            {"reached_share", is_reached ? 1 : 0},
            {"best", nullptr},
            {"seconds_all", Json::array({finite_or_null(then.training_seconds)})},
            {"evaluation_seconds", finite_or_null(then.evaluation_seconds)},
            {"epochs", finite_or_null(then.epoch)}};
  if (!values.empty()) judged["best"] = target.is_loss ? std::ranges::min(values) : std::ranges::max(values);
  put_median(judged, "seconds", {then.training_seconds});
  if (price_per_second > 0) {
    put_median(row["cost"], "to_target", {(then.training_seconds + then.evaluation_seconds) * price_per_second});
  }
}

}  // namespace

void Goal::declare(cli::Flags& flags, const std::string& what_target_does) {
  flags
      .text(
          "--target", common(Group::training).keeps_bits().moves({"amount"}).compared(),
          [this](const std::string& text) { target = parse_target(text); }, "", "METRIC=VALUE",
          what_target_does + ": accuracy=0.98 or loss=1.6")
      .record("target", [this] { return target ? Json(text_of(*target)) : Json(nullptr); });
  flags.real("--price-per-hour", rare(Group::training).keeps_bits().counts_if([this] { return price_per_hour > 0; }),
             price_per_hour, 0, 1e6, "What the machine costs per hour; 0: not reported");
}

void add_goal(Json& row, const RunRecord& run, const Goal& goal) {
  const double price_per_second = goal.price_per_hour / 3600;
  if (goal.price_per_hour > 0) {
    double seconds = run.result.seconds;
    for (const EpochResult& epoch : run.result.epochs) seconds += epoch.evaluation_seconds;
    for (const Validation& v : run.result.validations) seconds += v.seconds;
    row["cost"] = {{"per_run", finite_or_null(seconds * price_per_second)}, {"to_target", nullptr}};
  }
  if (goal.target) add_target(row, run, *goal.target, price_per_second);
}

std::string goal_line(const Json& row, const std::string& data_name) {
  const Json &target = report::part(row, "target"), &cost = report::part(row, "cost");
  std::vector<std::string> parts;
  if (target.is_object()) {
    const char* metric = target.contains("loss") ? "loss" : "accuracy";
    const double share = report::number(target, "reached_share");
    parts.push_back(fmt::format("target {} {:g}: reached by {:.0f} % of the runs", metric,
                                report::number(target, metric), share * 100));
    if (share > 0) {
      parts.push_back(fmt::format("after {} of training and {:.3f} s of evaluation",
                                  with_interval(target, "seconds", "{:.3f}", " s"),
                                  report::number(target, "evaluation_seconds")));
    }
  }
  if (cost.is_object()) parts.push_back(fmt::format("cost of a run {:.3g}", report::number(cost, "per_run")));
  if (report::member(cost, "to_target").is_number()) {
    parts.push_back("cost to the target " + with_interval(cost, "to_target", "{:.3g}"));
  }
  return parts.empty() ? "" : fmt::format("{}  {}\n", data_name, fmt::join(parts, ", "));
}

void check_goal(const Json& rows, const Goal& goal) {
  if (!goal.target) return;
  for (const Json& row : rows) {
    const Json& target = report::part(row, "target");
    if (!target.is_object() || report::number(target, "reached_share") >= 1) continue;
    fail(ExitCode::missed, "--target {}: {} reached it in {:.0f} % of its runs; the best was {:g}",
         text_of(*goal.target), report::text(row, "name"), report::number(target, "reached_share") * 100,
         report::number(target, "best"));
  }
}

}  // namespace hs::bench::measure
