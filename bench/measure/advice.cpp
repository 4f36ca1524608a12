#include "bench/measure/advice.h"

#include <fmt/ranges.h>

#include <cmath>

#include "bench/measure/row.h"
#include "bench/report/record.h"

namespace hs::bench::measure {
namespace {

constexpr double saves_bytes = 0.95, loses_accuracy = 0.005;  // a ratio; of 1

// A technique on top of all before it.
struct Step {
  const Json* row;
  SpeedUp gain;
  double bytes, accuracy;  // bytes after / before, accuracy after - before

  std::string flags() const { return report::text(*row, "train_flags"); }
  std::string bytes_text() const { return fmt::format("{:+.0f} % bytes", (bytes - 1) * 100); }
  std::string accuracy_text() const {
    return accuracy < -loses_accuracy ? fmt::format("; accuracy {:+.1f} points", accuracy * 100) : "";
  }
};

Step step_between(const Json& before, const Json& after) {
  return {.row = &after,
          .gain = speed_up(report::numbers(before, "seconds_all"), report::numbers(after, "seconds_all")),
          .bytes = report::number(after, "peak_bytes") / report::number(before, "peak_bytes"),
          .accuracy = report::number(after, "test_accuracy") - report::number(before, "test_accuracy")};
}

// The baseline, the first technique, then each with all before it.
std::vector<const Json*> chain_of(const Json& rows) {
  std::vector<const Json*> chain;
  for (const Json& row : rows) {
    if (row.contains("error")) continue;
    if (chain.size() < 2 || report::text(row, "group") == "cumulative") chain.push_back(&row);
  }
  return chain;
}

std::string if_any(const char* what, const std::vector<std::string>& parts) {
  return parts.empty() ? "" : fmt::format("{}: {}.", what, fmt::join(parts, "; "));
}

}  // namespace

std::vector<std::string> advice(const Json& rows, const std::string& command) {
  const std::vector<const Json*> chain = chain_of(rows);
  std::vector<std::string> on, faster, smaller, left;
  std::string flags, defaults;
  bool can_tell = true;
  for (size_t i = 1; i < chain.size(); ++i) {
    const Step step = step_between(*chain[i - 1], *chain[i]);
    if (report::flag(*chain[i], "on_by_default")) {
      on.push_back(report::text(*chain[i], "name"));
      defaults = step_between(*chain[0], *chain[i]).gain.text();
    } else if (report::flag(*chain[i], "for_memory")) {
      step.bytes < saves_bytes
          ? smaller.push_back(
                fmt::format("{} ({}, {}{})", step.flags(), step.bytes_text(), step.gain.text(), step.accuracy_text()))
          : left.push_back(fmt::format("{}, which saves no memory here ({})", step.flags(), step.bytes_text()));
    } else if (step.gain.verdict == "faster") {
      flags += " " + step.flags();
      faster.push_back(step.gain.text() + step.accuracy_text());
    } else {
      can_tell = can_tell && step.gain.verdict != "too few runs to tell";
      left.push_back(fmt::format("{}: {} ({})", step.flags(), step.gain.verdict, step.gain.text()));
    }
  }
  std::vector<std::string> lines;
  lines.push_back(!faster.empty() ? fmt::format("On this machine: {}{} ({}).", command, flags, fmt::join(faster, "; "))
                  : can_tell
                      ? fmt::format("On this machine: {}, as it is: what it leaves off is no faster here.", command)
                      : "On this machine: too few runs to tell; give --repeat 3 or more.");
  if (!on.empty()) lines.push_back(fmt::format("On by default: {} (together {}).", fmt::join(on, ", "), defaults));
  for (const std::string& line : {if_any("To save memory", smaller), if_any("Leave out", left)}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

void put_answer(Json& record, std::vector<std::string> lines) {
  const Json& environment = report::part(record, "environment");
  const double load = report::number(environment, "load_average"), cores = report::number(environment, "cores");
  if (load > cores / 2) {
    lines.push_back(
        fmt::format("The machine was busy: a load of {:.1f} on {:.0f} cores before it began. Repeat it when it is not.",
                    load, cores));
  }
  record["answer"] = lines;
}

}  // namespace hs::bench::measure
