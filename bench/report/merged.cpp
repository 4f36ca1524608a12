#include "bench/report/merged.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bench/cli/statistics.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "engine/check.h"
#include "models/models.h"

namespace hs::bench::report {
namespace {

std::string counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

bool is_timed(const Json& row) { return row.contains("seconds_all"); }

std::string machine_of(const Json& environment) {
  const std::string gpu = text(part(environment, "device_facts"), "name");
  return text(environment, "device") == "cpu" || gpu.empty()
             ? fmt::format("{}, {:.0f} cores", text(environment, "cpu"), number(environment, "cores"))
             : gpu;
}

// What a row was run with: of its record, of its technique, and what another engine's row says of itself.
Json settings_of(const Json& record, const Json& row) {
  const Json &environment = part(record, "environment"), &config = part(record, "config");
  Json all = {{"model", member(config, "model")}, {"data", member(part(record, "data"), "name")}};
  flatten(config, "", all);
  if (const std::vector<std::string> kernels = texts(config, "kernels"); !kernels.empty()) {
    all["kernel"] = fmt::format("{}", fmt::join(kernels, ", "));
  }
  flatten(part(row, "experiment"), "", all);
  for (const char* name : {"model", "engine", "precision", "mode", "channels_last", "epochs", "batch", "seed", "repeat",
                           "learning_rate", "optimizer"}) {
    if (const Json& own = member(row, name); own.is_primitive() && !own.is_null()) all[name] = own;
  }
  all["threads"] = member(environment, "threads");  // the flags may have said 0 and auto
  all["device"] = member(environment, "device");
  all["machine"] = machine_of(environment);
  all.erase("recipe");  // its flags count
  flatten(part(row, "settings"), "", all);
  return all;
}

// Of a model of a text, the loss on the test set after the last epoch, the mean of the runs; else null.
Json test_loss(const Json& row, const std::string& model) {
  const std::vector<std::string> of_texts = model_names(InputKind::tokens);
  if (std::ranges::find(of_texts, model) == of_texts.end()) return nullptr;
  std::vector<double> losses;
  for (const Json& run : objects(row, "runs")) {
    const Json& epochs = objects(run, "epochs");
    if (!epochs.empty()) losses.push_back(number(epochs.back(), "test_loss"));
  }
  return finite_or_null(losses.empty() ? number(row, "test_loss") : mean(losses));
}

Json common(const Json& a, const Json& b) {
  Json same = Json::object();
  for (const auto& [name, value] : a.items()) {
    if (member(b, name.c_str()) == value) same[name] = value;
  }
  return same;
}

// A column for each setting that differs, after the run's name. A setting that one of two rows does not have is not
// different: older records lack some.
Table with_settings(Table table, const Json& rows) {
  std::vector<std::string> names = {"model", "data"};
  Json first = Json::object();
  for (const Json& row : rows) {
    for (const auto& [name, value] : part(row, "settings").items()) {
      if (value.is_null() || first.emplace(name, Json(value)).second || first[name] == value) continue;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  table.heads[0] = "run";
  table.heads.insert(table.heads.begin() + 1, names.begin(), names.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> cells;
    for (const std::string& name : names) {
      const std::string cell = shown({"", member(part(rows[i], "settings"), name.c_str())});
      cells.push_back(cell.empty() ? "-" : cell);
    }
    table.lines[i].insert(table.lines[i].begin() + 1, cells.begin(), cells.end());
  }
  table.left += names.size();
  return table;
}

}  // namespace

bool has_timed_rows(const Json& record) { return std::ranges::any_of(objects(record, "rows"), is_timed); }

Json merged(const std::vector<NamedRecord>& records, const std::string& filter) {
  Json rows = Json::array(), environment, config;
  std::string first;  // name, of all
  std::set<const NamedRecord*> used;
  for (const NamedRecord& from : records) {
    const Json& all = objects(from.record, "rows");
    for (const Json& row : all) {
      if (!is_timed(row)) continue;
      const bool is_merged = text(from.record, "command") == "report";
      const std::string name = is_merged         ? text(row, "name")
                               : all.size() == 1 ? from.name
                                                 : fmt::format("{}: {}", from.name, label_of(row));
      if (first.empty()) first = name;
      if (name.find(filter) == std::string::npos) continue;
      Json& one = rows.emplace_back(row);
      for (const char* what : {"group", "step", "written"}) one.erase(what);  // timelines and texts are long
      one["name"] = name;
      one["settings"] = settings_of(from.record, row);
      if (const Json loss = test_loss(row, text(one["settings"], "model")); !loss.is_null()) one["loss"] = loss;
      config = used.empty() ? one["settings"] : common(config, one["settings"]);
      environment = used.empty() ? from.record["environment"] : common(environment, from.record["environment"]);
      used.insert(&from);
    }
  }
  if (rows.empty()) fail(ExitCode::usage, "--filter {}: no run's name contains it; the first is {}", filter, first);
  for (const char* name : {"cpu", "device"}) environment.emplace(name, "different ones");
  for (const char* name : {"cores", "threads"}) environment.emplace(name, nullptr);
  Json record = {{"schema", schema_name}, {"command", "report"}, {"environment", environment}, {"config", config}};
  record["rows"] = rows;
  for (Json& row : record["rows"]) {  // what all have is in "config"
    for (const auto& [name, value] : config.items()) row["settings"].erase(name);
  }
  present(record, fmt::format("{} of {}", counted(rows.size(), "run"), counted(used.size(), "record")),
          {with_settings(results_table(record), rows)});
  return record;
}

}  // namespace hs::bench::report
