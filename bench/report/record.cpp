#include "bench/report/record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/cli/environment.h"
#include "bench/cli/statistics.h"
#include "bench/report/schema.h"
#include "bench/report/table.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs::bench::report {
namespace {

constexpr bool required = true;

// For all records.
constexpr Rule record_rules[] = {
    {"command", &kind::text},
    {"environment", &kind::object, required},
    {"data", &kind::object},
    {"config", &kind::object},
    {"rows", &kind::list},
    {"absent", &kind::objects},
    {"headline", &kind::text},
    {"tables", &kind::objects},
    {"remarks", &kind::texts},
    {"environment.cpu", &kind::text, required},
    {"environment.cores", &kind::count, required},
    {"environment.threads", &kind::count, required},
    {"environment.device", &kind::text, required},
    {"data.name", &kind::text, required},
    {"data.synthetic", &kind::flag, required},
    {"data.train", &kind::count},
    {"data.test", &kind::count},
    {"data.source", &kind::text},
    {"tables[].title", &kind::text},
    {"tables[].left", &kind::count},
    {"tables[].heads", &kind::texts, required},
    {"tables[].lines", &kind::list, required},
};
// For records written by this program, not by a peer.
constexpr Rule own_rules[] = {
    {"command", &kind::text, required},
    {"environment.os", &kind::text, required},
    {"environment.compiler", &kind::text, required},
    {"environment.commit", &kind::text, required},
    {"environment.version", &kind::text, required},
    {"environment.date", &kind::text, required},
    {"environment.device_facts", &kind::object},
};
// For timed rows. A value is null if the run failed or if it could not be measured.
constexpr Rule row_rules[] = {
    {"rows[].name", &kind::text, required},
    {"rows[].seconds", &kind::amount, required},
    {"rows[].seconds_all", &kind::amounts, required},
    {"rows[].samples_per_second", &kind::amount, required},
    {"rows[].test_accuracy", &kind::share, required},
    {"rows[].test_accuracy_all", &kind::shares, required},
    {"rows[].final_loss", &kind::amount, required},
    {"rows[].peak_bytes", &kind::count},
    {"rows[].seconds_low", &kind::amount},
    {"rows[].seconds_high", &kind::amount},
    {"rows[].stall_share", &kind::share},
    {"rows[].speed_up", &kind::amount},
    {"rows[].ratio", &kind::amount},
    {"rows[].ratio_low", &kind::amount},
    {"rows[].ratio_high", &kind::amount},
    {"rows[].error", &kind::text},
};
constexpr Rule own_row_rules[] = {
    {"rows[].runs", &kind::objects},
    {"rows[].epochs", &kind::objects},
    {"rows[].target", &kind::object},
    {"rows[].epochs[].training_loss", &kind::amount, required},
    {"rows[].epochs[].test_loss", &kind::amount, required},
    {"rows[].epochs[].test_accuracy", &kind::share, required},
    {"rows[].epochs[].seconds", &kind::amount, required},
    {"rows[].runs[].seed", &kind::count, required},
    {"rows[].runs[].evaluation_seconds", &kind::amount, required},
    {"rows[].runs[].epochs", &kind::objects, required},
    {"rows[].runs[].epochs[].training_loss", &kind::amount, required},
    {"rows[].runs[].epochs[].test_loss", &kind::amount, required},
    {"rows[].runs[].epochs[].test_accuracy", &kind::share, required},
    {"rows[].runs[].epochs[].seconds", &kind::amount, required},
};

// A text member for messages, truncated; empty if it has another type, which is reported elsewhere.
std::string label(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? fmt::format("{:.40}", value.get_ref<const std::string&>()) : "";
}

// The member, or null if it is missing. Throws Error (bad_input) if it is of another kind.
const Json& member_of_kind(const Json& object, const char* name, const Kind& kind) {
  const Json& value = member(object, name);
  if (!value.is_null() && !kind.fits(value)) fail(ExitCode::bad_input, "{}", complaint(name, value, kind));
  return value;
}

void check_table(const Json& table, const std::string& where) {
  const Json& heads = table["heads"];
  if (heads.empty()) fail(ExitCode::bad_input, "{}: has no heads", where);
  for (const Json& line : table["lines"]) {
    if (!line.is_array() || line.size() != heads.size()) {
      fail(ExitCode::bad_input, "{}: a line of {} cells under {} heads", where, line.size(), heads.size());
    }
    for (const Json& cell : line) {
      if (!cell.is_string()) fail(ExitCode::bad_input, "{}: {}", where, complaint("a cell", cell, kind::text));
      if (is_not_finite(cell.get<std::string>())) {
        fail(ExitCode::bad_input, "{}: a cell is {}, expected - for a missing value", where, cell.get<std::string>());
      }
    }
  }
}

// Checks that the row's members are consistent.
void check_row(const Json& row, const std::string& where) {
  if (row["test_accuracy_all"].size() != row["seconds_all"].size()) {
    fail(ExitCode::bad_input, "{}: {} accuracies of {} runs", where, row["test_accuracy_all"].size(),
         row["seconds_all"].size());
  }
  const std::vector<double> seconds = numbers(row, "seconds_all");
  if (row["seconds"].is_null() ? !row.contains("error") : seconds.empty()) {
    fail(ExitCode::bad_input, "{}: neither times nor an error", where);
  }
  if (seconds.empty()) return;
  const double expected = median(seconds);
  if (std::abs(number(row, "seconds") - expected) > 1e-9 * expected) {
    fail(ExitCode::bad_input, "{}: seconds is {}, but the median of seconds_all is {}", where, number(row, "seconds"),
         expected);
  }
}

}  // namespace

Json new_record(const std::string& command, Device device) {
  return {{"schema", schema_name}, {"command", command}, {"environment", cli::environment(device)}};
}

Json describe_data(const cli::TrainingData& data) {
  const SampleInfo& info = data.train->info();
  Json all = {{"name", info.name},
              {"synthetic", data.synthetic},
              {"train", info.count},
              {"test", data.test->info().count},
              {"source", data.source}};
  const auto decimal = [](float number) { return std::stod(fmt::format("{}", number)); };  // 0.1307, not 0.130699...
  if (!info.is_text()) {
    all["scale"] = {{"mean", decimal(info.scale.mean)}, {"deviation", decimal(info.scale.deviation)}};
  }
  if (!info.class_names.empty()) all["class_names"] = info.class_names;
  return all;
}

void check_record(const Json& record, const std::string& source) {
  if (!record.is_object()) fail(ExitCode::bad_input, "{}: is not a JSON object", source);
  const Json& schema = member(record, "schema");
  const bool is_peer = schema == peer_schema_name;
  if (!is_peer && schema != schema_name) {
    fail(ExitCode::bad_input, "{}: its schema is '{}', expected {} or {}", source, label(record, "schema"), schema_name,
         peer_schema_name);
  }
  check_rules(record, record_rules, source);
  if (!is_peer) check_rules(record, own_rules, source);
  for (const Json& table : member(record, "tables")) {
    check_table(table, fmt::format("{}: table '{}'", source, label(table, "title")));
  }
  const Json& command = member(record, "command");
  if (!is_peer && command != "train" && command != "techniques" && command != "peers") return;
  if (!record.contains("rows")) fail(ExitCode::bad_input, "{}: has no rows", source);
  check_rules(record, row_rules, source);
  if (!is_peer) check_rules(record, own_row_rules, source);
  for (const Json& row : record["rows"]) check_row(row, fmt::format("{}: row '{}'", source, label(row, "name")));
}

std::string read_text(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = read_file(path, JsonLimits::bytes);
  return {bytes.begin(), bytes.end()};
}

Json read_record(const std::filesystem::path& path) {
  Json record = parse(read_text(path), path.string());
  check_record(record, path.string());
  return record;
}

const Json& member(const Json& object, const char* name) {
  static const Json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

double number(const Json& object, const char* name) {
  const Json& value = member_of_kind(object, name, kind::number);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::string text(const Json& object, const char* name) {
  const Json& value = member_of_kind(object, name, kind::text);
  return value.is_null() ? "" : value.get<std::string>();
}

bool flag(const Json& object, const char* name) { return member_of_kind(object, name, kind::flag) == true; }

std::vector<double> numbers(const Json& object, const char* name) {
  std::vector<double> values;
  for (const Json& value : member_of_kind(object, name, kind::numbers)) {
    if (!value.is_null()) values.push_back(value.get<double>());
  }
  return values;
}

std::vector<std::string> texts(const Json& object, const char* name) {
  const Json& values = member_of_kind(object, name, kind::texts);
  return values.is_null() ? std::vector<std::string>() : values.get<std::vector<std::string>>();
}

const Json& part(const Json& object, const char* name) { return member_of_kind(object, name, kind::object); }

const Json& objects(const Json& object, const char* name) {
  static const Json none = Json::array();
  const Json& values = member_of_kind(object, name, kind::objects);
  return values.is_null() ? none : values;
}

}  // namespace hs::bench::report
