#include "bench/measure/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/cli/statistics.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"

namespace hs::bench::measure {
namespace {

// The compared values of a row.
struct Timed {
  std::string key;
  std::vector<double> seconds;
  double accuracy;
};

std::vector<Timed> timed_rows(const Json& record) {
  std::vector<Timed> rows;
  for (const Json& row : report::objects(record, "rows")) {
    rows.push_back({report::label_of(row), report::numbers(row, "seconds_all"), report::number(row, "test_accuracy")});
  }
  return rows;
}

// The first row with each name.
std::map<std::string, const Timed*> by_key(const std::vector<Timed>& rows) {
  std::map<std::string, const Timed*> found;
  for (const Timed& row : rows) found.emplace(row.key, &row);
  return found;
}

RowComparison compare_rows(const Timed& before, const Timed& after) {
  const std::vector<double>&a = before.seconds, &b = after.seconds;
  RowComparison row = {before.key, a.size(), b.size(), median(a), median(b), 0, 0, 1, false};
  row.change = row.seconds_after / row.seconds_before - 1;
  row.accuracy_change = after.accuracy - before.accuracy;
  row.probability = row.change > 0 ? probability_not_larger(a, b) : probability_not_larger(b, a);
  row.can_tell = smallest_probability(a.size(), b.size()) <= significance;
  return row;
}

std::string short_dump(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void add_differences(const Json& before, const Json& after, const char* part, std::vector<const char*> names,
                     std::vector<std::string>& differences) {
  const Json &a = report::member(before, part), &b = report::member(after, part);
  for (const char* name : names) {
    if (report::member(a, name) == report::member(b, name)) continue;
    differences.push_back(
        fmt::format("{}: {} and {}", name, short_dump(report::member(a, name)), short_dump(report::member(b, name))));
  }
}

}  // namespace

Comparison compare(const Json& before, const Json& after, const std::string& before_name,
                   const std::string& after_name) {
  Comparison comparison;
  const std::vector<Timed> rows_before = timed_rows(before), rows_after = timed_rows(after);
  const auto keys_before = by_key(rows_before), keys_after = by_key(rows_after);
  for (const Timed& row : rows_before) {
    if (const auto other = keys_after.find(row.key); other != keys_after.end()) {
      comparison.rows.push_back(compare_rows(row, *other->second));
    } else {
      comparison.only_one.push_back(fmt::format("{}: only in {}", row.key, before_name));
    }
  }
  for (const Timed& row : rows_after) {
    if (!keys_before.contains(row.key))
      comparison.only_one.push_back(fmt::format("{}: only in {}", row.key, after_name));
  }
  std::vector<std::string>& differences = comparison.differences;
  add_differences(before, after, "environment", {"cpu", "cores", "threads", "isa_cap", "device", "compiler", "flags"},
                  differences);
  add_differences(before, after, "data", {"name", "train", "test"}, differences);
  add_differences(before, after, "config",
                  {"model", "epochs", "batch", "optimizer", "learning_rate", "precision", "accumulate", "graph"},
                  differences);
  return comparison;
}

const char* RowComparison::verdict() const {
  if (!std::isfinite(change)) return "no times";
  if (!can_tell) return "too few runs to tell";
  if (!significant()) return "within noise";
  return change > 0 ? "slower" : "faster";
}

report::Rows rows_of(const Comparison& comparison) {
  report::Rows rows;
  for (const RowComparison& row : comparison.rows) {
    rows.add({{"name", row.name, "row"},
              {"runs_before", row.runs_before},
              {"runs_after", row.runs_after},
              {"seconds_before", row.seconds_before, "before s", "{:.3f}"},
              {"seconds_after", row.seconds_after, "after s", "{:.3f}"},
              {"", fmt::format("{}, {}", row.runs_before, row.runs_after), "runs"},
              {"change", row.change, "change", "{:+.1f} %", 100},
              {"probability", row.probability, "p", "{:.3f}"},
              {"accuracy_change", row.accuracy_change, "accuracy", "{:+.2f} %", 100},
              {"verdict", row.verdict(), "verdict"}});
  }
  return rows;
}

}  // namespace hs::bench::measure
