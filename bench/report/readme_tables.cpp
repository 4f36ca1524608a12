#include "bench/report/readme_tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

constexpr const char* begin_marker = "<!-- results:begin -->\n";
constexpr const char* end_marker = "<!-- results:end -->";

bool is_peer(const Json& record) { return text(record, "schema") == peer_schema_name; }
// A peer's settings are in its rows, ours in "config".
const Json& settings(const Json& record) { return is_peer(record) ? record["rows"][0] : part(record, "config"); }

// Model, data and epochs: the same for all rows of a table, so they are comparable.
std::string task(const Json& record) {
  const Json& config = settings(record);
  const Json& data = is_peer(record) ? config : part(record, "data");
  return fmt::format("{}: {:.0f} training and {:.0f} test digits, {:.0f} epoch{}, batch {:.0f}, learning rate {}",
                     markdown_cell(text(config, "model")), number(data, "train"), number(data, "test"),
                     number(config, "epochs"), number(config, "epochs") == 1 ? "" : "s", number(config, "batch"),
                     number(config, "learning_rate"));
}

std::string precision_suffix(const Json& settings) {
  const std::string precision = text(settings, "precision");
  return precision.empty() || precision == "f32" ? "" : ", " + precision;
}

std::string who(const Json& record) {
  if (is_peer(record)) {
    const Json& row = record["rows"][0];
    const std::string version = text(record["environment"], "torch");
    const char* layout = flag(row, "channels_last") ? ", channels last" : "";
    return fmt::format("PyTorch {}{}, {}{}", version.substr(0, version.find('+')), precision_suffix(row),
                       text(row, "mode"), layout);
  }
  std::string name = "halfstep" + precision_suffix(part(record, "config"));
  const std::vector<std::string> kernels = texts(part(record, "config"), "kernels");
  return kernels.empty() ? name : fmt::format("{} with {}", name, fmt::join(kernels, ", "));
}

double threads(const Json& record) { return number(record["environment"], "threads"); }

std::string training_table(const std::vector<Json>& records) {
  Table table = {{"", "threads", "seconds", "samples/s", "test accuracy", "runs"}, {}};
  std::set<std::string> machines;
  for (const Json& record : records) {
    const Json& row = record["rows"][0];
    table.lines.push_back({who(record), fmt::format("{:.0f}", threads(record)),
                           fmt::format("{:.2f}", number(row, "seconds")),
                           fmt::format("{:.0f}", number(row, "samples_per_second")),
                           fmt::format("{:.2f} %", number(row, "test_accuracy") * 100),
                           std::to_string(numbers(row, "seconds_all").size())});
    if (!is_peer(record)) machines.insert(machine_line(record));
  }
  std::string text =
      fmt::format("{}. Seconds are training alone, the median of the runs; accuracy is their mean.\n\n{}\n",
                  task(records[0]), to_markdown(table));
  for (const std::string& machine : machines) text += fmt::format("Measured on {}.\n", markdown_cell(machine));
  return text;
}

}  // namespace

std::string readme_tables(const std::vector<Json>& records) {
  std::vector<std::pair<std::string, std::vector<Json>>> groups;  // by task
  std::string techniques;
  for (const Json& record : records) {
    const bool is_techniques = text(record, "command") == "techniques";
    if (!is_techniques && !is_peer(record) && text(record, "command") != "train") continue;
    if (record["rows"].empty()) continue;
    const Json& first = record["rows"][0];
    if (is_techniques) {
      techniques +=
          fmt::format("\n`halfstep-bench techniques`, {}. {} runs of each row, in turns.\n\n{}\nMeasured on {}.\n",
                      task(record), numbers(first, "seconds_all").size(), to_markdown(results_table(record)),
                      markdown_cell(machine_line(record)));
      for (const std::string& sentence : remarks(record)) techniques += markdown_cell(sentence) + "\n";
      continue;
    }
    if (std::isnan(number(first, "seconds"))) continue;
    auto group = std::ranges::find(groups, task(record), &std::pair<std::string, std::vector<Json>>::first);
    if (group == groups.end()) group = groups.insert(group, {task(record), {}});
    group->second.push_back(record);
  }
  // Largest group first; in each group, fastest first.
  std::ranges::stable_sort(groups, std::greater(), [](const auto& group) { return group.second.size(); });
  std::string text;
  for (auto& [task, group] : groups) {
    std::ranges::stable_sort(group, {}, [](const Json& record) { return number(record["rows"][0], "seconds"); });
    text += fmt::format("\n{}", training_table(group));
  }
  return text + techniques + "\n";
}

std::string with_tables(const std::string& document, const std::string& tables, const std::string& source) {
  const size_t begin = document.find(begin_marker), end = document.find(end_marker);
  if (begin == std::string::npos || end == std::string::npos || end < begin ||
      document.find(begin_marker, begin + 1) != std::string::npos ||
      document.find(end_marker, end + 1) != std::string::npos) {
    fail(ExitCode::bad_input, "{}: expected one line {} and after it one line {}", source,
         std::string(begin_marker).substr(0, std::string(begin_marker).size() - 1), end_marker);
  }
  const size_t inside = begin + std::string(begin_marker).size();
  return document.substr(0, inside) + tables + document.substr(end);
}

}  // namespace hs::bench::report
