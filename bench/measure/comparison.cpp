#include "bench/measure/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/report/presentation.h"
#include "bench/report/record.h"

namespace hs::bench::measure {
namespace {

// The compared values of a row.
struct Timed {
  std::string key;
  std::vector<double> seconds, accuracies, losses, to_target;
  double accuracy;
  std::string target;
  size_t lost = 0;
};

size_t lost_runs(const Json& row) {
  const double lost = report::number(row, "lost_runs");
  constexpr double most = 10000;  // whatever a damaged record says
  return !row.contains("error") ? 0 : std::isfinite(lost) ? static_cast<size_t>(std::clamp(lost, 1.0, most)) : 1;
}

Timed timed(const Json& row) {
  Timed values = {report::label_of(row),
                  report::numbers(row, "seconds_all"),
                  report::numbers(row, "test_accuracy_all"),
                  {},
                  {},
                  report::number(row, "test_accuracy"),
                  ""};
  for (const Json& run : report::objects(row, "runs")) {
    const Json& epochs = report::objects(run, "epochs");
    const double loss = epochs.empty() ? NAN : report::number(epochs.back(), "test_loss");
    if (std::isfinite(loss)) values.losses.push_back(loss);
  }
  const Json& target = report::part(row, "target");
  for (const Json& seconds : report::member(target, "seconds_all")) {
    values.to_target.push_back(seconds.is_number() ? seconds.get<double>() : INFINITY);
  }
  for (const char* metric : {"accuracy", "loss"}) {
    const double value = report::number(target, metric);
    if (std::isfinite(value) && !values.to_target.empty()) values.target = fmt::format("{}={:g}", metric, value);
  }
  // A run that did not finish never ended and learnt nothing.
  values.lost = lost_runs(row);
  if (values.lost == 0) return values;
  values.seconds.resize(values.seconds.size() + values.lost, INFINITY);
  values.accuracies.resize(values.accuracies.size() + values.lost, 0);
  values.losses.resize(values.losses.size() + values.lost, INFINITY);
  if (!values.target.empty()) values.to_target.resize(values.to_target.size() + values.lost, INFINITY);
  values.accuracy = mean(values.accuracies);
  return values;
}

std::vector<Timed> timed_rows(const Json& record) { return mapped(report::objects(record, "rows"), timed); }

// The first row with each name.
std::map<std::string, const Timed*> by_key(const std::vector<Timed>& rows) {
  std::map<std::string, const Timed*> found;
  for (const Timed& row : rows) found.emplace(row.key, &row);
  return found;
}

Tested test(const std::vector<double>& a, const std::vector<double>& b, double (*middle)(const std::vector<double>&),
            const char* above, const char* below) {
  const double before = middle(a), after = middle(b);
  const double larger = probability_not_larger(a, b), smaller = probability_not_larger(b, a);
  const bool agree = (larger < smaller) == (after > before);  // the ranks, and what is shown
  return {before, after, agree ? std::min(1.0, 2 * std::min(larger, smaller)) : 1, a, b, above, below};
}

RowComparison compare_rows(const Timed& a, const Timed& b, bool took_turns) {
  const auto middle = [](const std::vector<double>& values) { return median(values); };
  const Tested seconds = test(a.seconds, b.seconds, middle, "slower", "faster");
  return {.name = a.key == b.key ? a.key : a.key + " and " + b.key,
          .runs_before = a.seconds.size(),
          .runs_after = b.seconds.size(),
          .seconds = seconds,
          .change = seconds.after / seconds.before - 1,
          .accuracy = test(a.accuracies, b.accuracies, mean, "higher", "lower"),
          .loss = test(a.losses, b.losses, mean, "higher", "lower"),
          .accuracy_change = b.accuracy - a.accuracy,
          .to_target = test(a.to_target, b.to_target, middle, "later", "earlier"),
          .target = a.target == b.target ? a.target : "",
          .speed_up = took_turns && a.seconds.size() == b.seconds.size() ? ratio_interval(a.seconds, b.seconds)
                                                                         : Interval{NAN, NAN}};
}

std::string short_dump(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void add_differences(const Json& before, const Json& after, const char* part, const std::vector<const char*>& names,
                     std::vector<std::string>& differences) {
  const Json &a = report::member(before, part), &b = report::member(after, part);
  for (const char* name : names) {
    if (report::member(a, name) == report::member(b, name)) continue;
    differences.push_back(
        fmt::format("{}: {} and {}", name, short_dump(report::member(a, name)), short_dump(report::member(b, name))));
  }
}

// All verdicts of all rows, and the claims beside them, may be wrong in 5 of 100 cases together.
void share_error(std::vector<RowComparison>& rows, size_t claims) {
  std::vector<Tested*> all;
  for (RowComparison& row : rows) {
    for (Tested* tested : {&row.seconds, &row.accuracy, &row.loss, &row.to_target}) {
      if (!tested->values_before.empty() && !tested->values_after.empty()) all.push_back(tested);
    }
  }
  for (Tested* tested : all) tested->error = page_error / static_cast<double>(all.size() + claims);
}

}  // namespace

Comparison compare(const cli::Flags& train, const Json& before, const Json& after, const std::string& before_name,
                   const std::string& after_name, bool took_turns, size_t claims) {
  Comparison comparison;
  const std::vector<Timed> rows_before = timed_rows(before), rows_after = timed_rows(after);
  auto keys_before = by_key(rows_before), keys_after = by_key(rows_after);
  const bool one_each = rows_before.size() == 1 && rows_after.size() == 1;
  if (one_each && report::text(before, "command") == "train" && report::text(after, "command") == "train") {
    keys_before = {{rows_after[0].key, &rows_before[0]}};  // two configurations, perhaps of two models
    keys_after.emplace(rows_before[0].key, &rows_after[0]);
  }
  for (const Timed& row : rows_before) {
    if (const auto other = keys_after.find(row.key); other != keys_after.end()) {
      comparison.rows.push_back(compare_rows(row, *other->second, took_turns));
      for (const auto& [side, name] : {std::pair(&row, before_name), {other->second, after_name}}) {
        if (side->lost == 0) continue;
        comparison.lost.push_back(fmt::format(
            "{}: {} of {} runs of {} did not finish; they count as lost, as endless and with an accuracy of 0",
            side->key, side->lost, side->seconds.size(), name));
      }
    } else {
      comparison.only_one.push_back(fmt::format("{}: only in {}", row.key, before_name));
      ++comparison.gone;
    }
  }
  for (const Timed& row : rows_after) {
    if (!keys_before.contains(row.key))
      comparison.only_one.push_back(fmt::format("{}: only in {}", row.key, after_name));
  }
  share_error(comparison.rows, claims);
  std::vector<std::string>& differences = comparison.differences;
  add_differences(before, after, "environment", {"cpu", "cores", "threads", "isa_cap", "device", "compiler", "flags"},
                  differences);
  add_differences(before, after, "data", {"name", "train", "test"}, differences);
  std::vector<const char*> settings;
  for (const cli::Flags::Flag& flag : train.all()) {
    if (flag.facts.is_compared) settings.push_back(flag.member.c_str());
  }
  add_differences(before, after, "config", settings, differences);
  return comparison;
}

bool Tested::can_tell() const { return 2 * smallest_probability(values_before.size(), values_after.size()) <= error; }

std::string Tested::verdict() const {
  const size_t runs = std::min(values_before.size(), values_after.size());
  if (!significant()) return cannot_tell(can_tell() ? runs : 0, probability, error, fewest_runs(error / 2));
  return after > before ? above : below;
}

Claim judge_claim(const std::vector<double>& before, const std::vector<double>& after, double times, bool is_as_good,
                  size_t verdicts) {
  std::vector<double> claimed = after;
  for (double& seconds : claimed) seconds *= times;
  const double error = page_error / static_cast<double>(verdicts), ratio = median(before) / median(after);
  const double probability = probability_not_larger(claimed, before);
  const bool can_tell = smallest_probability(before.size(), after.size()) <= error;
  const size_t runs = can_tell ? std::min(before.size(), after.size()) : 0;
  const bool is_short = ratio < times || std::isnan(ratio) || !is_as_good;
  return {ratio, probability, error,
          can_tell && is_short   ? "missed"
          : probability <= error ? "met"
                                 : cannot_tell(runs, 2 * probability, 2 * error, fewest_runs(error))};
}

report::Rows rows_of(const Comparison& comparison) {
  const auto json = [](const Tested& tested) {
    return Json{{"before", finite_or_null(tested.before)},
                {"after", finite_or_null(tested.after)},
                {"probability", tested.probability},
                {"verdict", tested.verdict()}};
  };
  const bool took_turns =
      std::ranges::any_of(comparison.rows, [](const auto& row) { return std::isfinite(row.speed_up.low); });
  report::Rows rows;
  for (const RowComparison& row : comparison.rows) {
    const Interval& interval = row.speed_up;
    const double speed_up = took_turns ? row.seconds.before / row.seconds.after : NAN;
    const bool has_target = !row.target.empty();
    const std::string verdict = std::isnan(row.change) ? "no times" : row.seconds.verdict();
    rows.add({{"name", row.name, "row"},
              {"runs_before", row.runs_before},
              {"runs_after", row.runs_after},
              {"seconds_before", row.seconds.before, "before s", "{:.3f}"},
              {"seconds_after", row.seconds.after, "after s", "{:.3f}"},
              {"", fmt::format("{}, {}", row.runs_before, row.runs_after), "runs"},
              {"change", row.change, "change", "{:+.1f} %", 100},
              {"speed_up", speed_up},
              {"speed_up_low", interval.low},
              {"speed_up_high", interval.high},
              {"", fmt::format("{:.2f} ({:.2f} - {:.2f})", speed_up, interval.low, interval.high),
               took_turns ? "times as fast" : ""},
              {"probability", row.seconds.probability, "p", "{:.3f}"},
              {"accuracy_change", row.accuracy_change, "accuracy", "{:+.2f} %", 100},
              {"verdict", verdict},
              {"",
               fmt::format("{}; accuracy {}{}", verdict, row.accuracy.verdict(),
                           has_target ? "; target " + row.to_target.verdict() : ""),
               "verdict"},
              {"accuracy", json(row.accuracy)},
              {"test_loss", json(row.loss)},
              {"to_target", has_target ? json(row.to_target) : Json()}});
    if (has_target) rows.json.back()["to_target"]["target"] = row.target;
  }
  return rows;
}

report::Table learned_by(const Comparison& comparison) {
  report::Table table = {{"row", "figure", "before", "after", "change", "p", "verdict"}, {}, "what was learned", 2};
  for (const RowComparison& row : comparison.rows) {
    const auto add = [&](const std::string& what, const Tested& tested, double factor, const char* unit) {
      if (std::isnan(tested.before) || std::isnan(tested.after)) return;
      const auto shown = [&](double value, const char* sign) {
        return fmt::format(fmt::runtime(fmt::format("{{:{}.4f}}{}", sign, unit)), value * factor);
      };
      table.lines.push_back({row.name, what, shown(tested.before, ""), shown(tested.after, ""),
                             shown(tested.after - tested.before, "+"), fmt::format("{:.3f}", tested.probability),
                             tested.verdict()});
    };
    add("accuracy", row.accuracy, 100, " %");
    add("test loss", row.loss, 1, "");
    if (!row.target.empty()) add("seconds to " + row.target, row.to_target, 1, "");
  }
  return table;
}

}  // namespace hs::bench::measure
