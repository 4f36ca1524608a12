#include "bench/report/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "bench/cli/environment.h"
#include "bench/measure/statistics.h"
#include "bench/report/table.h"
#include "data/io/input_file.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

enum class Kind { text, flag, number, count, amount, share, object, list, texts, numbers, amounts, shares, objects };

struct Member {
  const char* name;
  Kind kind;
  bool required;
};

constexpr Member record_members[] = {
    {"command", Kind::text, false},  {"environment", Kind::object, true}, {"data", Kind::object, false},
    {"config", Kind::object, false}, {"rows", Kind::list, false},         {"absent", Kind::objects, false},
    {"headline", Kind::text, false}, {"tables", Kind::objects, false},    {"remarks", Kind::texts, false},
};
constexpr Member table_members[] = {
    {"title", Kind::text, false},
    {"left", Kind::count, false},
    {"heads", Kind::texts, true},
    {"lines", Kind::list, true},
};
constexpr Member environment_members[] = {
    {"cpu", Kind::text, true},      {"cores", Kind::count, true},
    {"threads", Kind::count, true}, {"os", Kind::text, true},
    {"compiler", Kind::text, true}, {"commit", Kind::text, true},
    {"version", Kind::text, true},  {"device", Kind::text, true},
    {"date", Kind::text, true},     {"device_facts", Kind::object, false},
};
constexpr Member peer_environment_members[] = {
    {"cpu", Kind::text, true},
    {"cores", Kind::count, true},
    {"threads", Kind::count, true},
    {"device", Kind::text, true},
};
constexpr Member data_members[] = {
    {"name", Kind::text, true},   {"synthetic", Kind::flag, true}, {"train", Kind::count, false},
    {"test", Kind::count, false}, {"source", Kind::text, false},
};
// Of a row that was timed. Null figures are those of a run that failed or of something that could not be read.
constexpr Member row_members[] = {
    {"name", Kind::text, true},           {"seconds", Kind::amount, true},
    {"seconds_all", Kind::amounts, true}, {"samples_per_second", Kind::amount, true},
    {"test_accuracy", Kind::share, true}, {"test_accuracy_all", Kind::shares, true},
    {"final_loss", Kind::amount, true},   {"peak_bytes", Kind::count, false},
    {"seconds_low", Kind::amount, false}, {"seconds_high", Kind::amount, false},
    {"stall_share", Kind::share, false},  {"speed_up", Kind::amount, false},
    {"ratio", Kind::amount, false},       {"ratio_low", Kind::amount, false},
    {"ratio_high", Kind::amount, false},  {"error", Kind::text, false},
};
// And that a peer does not have.
constexpr Member own_row_members[] = {
    {"runs", Kind::objects, false},
    {"epochs", Kind::objects, false},
    {"target", Kind::object, false},
};
constexpr Member run_members[] = {
    {"seed", Kind::count, true},
    {"evaluation_seconds", Kind::amount, true},
    {"epochs", Kind::objects, true},
};
constexpr Member epoch_members[] = {
    {"training_loss", Kind::amount, true},
    {"test_loss", Kind::amount, true},
    {"test_accuracy", Kind::share, true},
    {"seconds", Kind::amount, true},
};

template <class Test>
bool is_list_of(const Json& value, const Test& test) {
  return value.is_array() && std::ranges::all_of(value, test);
}
template <class Test>
bool is_list_with_nulls_of(const Json& value, const Test& test) {
  return is_list_of(value, [&](const Json& item) { return item.is_null() || test(item); });
}

bool is_amount(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()) && value >= 0; }
bool is_count(const Json& value) { return value.is_number_integer() && value >= 0; }
bool is_share(const Json& value) { return is_amount(value) && value <= 1; }

const char* expected(Kind kind) {
  switch (kind) {
    case Kind::text:
      return "a text";
    case Kind::flag:
      return "true or false";
    case Kind::number:
      return "a number";
    case Kind::count:
      return "a whole number from 0";
    case Kind::amount:
      return "a number from 0";
    case Kind::share:
      return "a number from 0 to 1";
    case Kind::object:
      return "an object";
    case Kind::list:
      return "a list";
    case Kind::texts:
      return "a list of texts";
    case Kind::numbers:
      return "a list of numbers";
    case Kind::amounts:
      return "a list of numbers from 0";
    case Kind::shares:
      return "a list of numbers from 0 to 1";
    case Kind::objects:
      return "a list of objects";
  }
  return "";
}

bool fits(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::text:
      return value.is_string();
    case Kind::flag:
      return value.is_boolean();
    case Kind::number:
      return value.is_number();
    case Kind::count:
      return is_count(value);
    case Kind::amount:
      return is_amount(value);
    case Kind::share:
      return is_share(value);
    case Kind::object:
      return value.is_object();
    case Kind::list:
      return value.is_array();
    case Kind::texts:
      return is_list_of(value, [](const Json& item) { return item.is_string(); });
    case Kind::numbers:
      return is_list_with_nulls_of(value, [](const Json& item) { return item.is_number(); });
    case Kind::amounts:
      return is_list_with_nulls_of(value, is_amount);
    case Kind::shares:
      return is_list_with_nulls_of(value, is_share);
    case Kind::objects:
      return is_list_of(value, [](const Json& item) { return item.is_object(); });
  }
  return false;
}

// A text for messages, not too long; empty if it has another type, which is reported elsewhere.
std::string label(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? fmt::format("{:.40}", value.get_ref<const std::string&>()) : "";
}

// "NAME is VALUE, expected KIND"
std::string complaint(const char* name, const Json& value, Kind kind) {
  const std::string found = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return fmt::format("{} is {}, expected {}", name, found.substr(0, 40), expected(kind));
}

// Null if it is missing.
const Json& member_of_kind(const Json& object, const char* name, Kind kind) {
  const Json& value = member(object, name);
  if (!value.is_null() && !fits(value, kind)) fail(ExitCode::bad_input, "{}", complaint(name, value, kind));
  return value;
}

// Figures may be null, names and lists may not.
bool may_be_null(Kind kind) { return kind == Kind::count || kind == Kind::amount || kind == Kind::share; }

void check_members(const Json& object, std::span<const Member> members, const std::string& where) {
  if (!object.is_object()) fail(ExitCode::bad_input, "{}: is not an object", where);
  for (const Member& member : members) {
    const auto found = object.find(member.name);
    if (found == object.end()) {
      if (member.required) fail(ExitCode::bad_input, "{}: {} is missing", where, member.name);
      continue;
    }
    if (fits(*found, member.kind) || (found->is_null() && may_be_null(member.kind))) continue;
    fail(ExitCode::bad_input, "{}: {}", where, complaint(member.name, *found, member.kind));
  }
}

void check_table(const Json& table, const std::string& where) {
  check_members(table, table_members, where);
  const Json& heads = table["heads"];
  if (heads.empty()) fail(ExitCode::bad_input, "{}: has no heads", where);
  for (const Json& line : table["lines"]) {
    if (!line.is_array() || line.size() != heads.size()) {
      fail(ExitCode::bad_input, "{}: a line of {} cells under {} heads", where, line.size(), heads.size());
    }
    for (const Json& cell : line) {
      if (!cell.is_string()) fail(ExitCode::bad_input, "{}: {}", where, complaint("a cell", cell, Kind::text));
      if (is_not_finite(cell.get<std::string>())) {
        fail(ExitCode::bad_input, "{}: a cell is {}, expected - for a figure that there is not", where,
             cell.get<std::string>());
      }
    }
  }
}

void check_epochs(const Json& epochs, const std::string& where) {
  for (const Json& epoch : epochs) check_members(epoch, epoch_members, where + ", an epoch");
}

void check_row(const Json& row, bool is_peer, const std::string& where) {
  check_members(row, row_members, where);
  const std::vector<double> seconds = numbers(row, "seconds_all");
  if (row["test_accuracy_all"].size() != row["seconds_all"].size()) {
    fail(ExitCode::bad_input, "{}: {} accuracies of {} runs", where, row["test_accuracy_all"].size(),
         row["seconds_all"].size());
  }
  if (row["seconds"].is_null() ? !row.contains("error") : seconds.empty()) {
    fail(ExitCode::bad_input, "{}: neither times nor an error", where);
  }
  if (!seconds.empty() &&
      std::abs(number(row, "seconds") - measure::median(seconds)) > 1e-9 * measure::median(seconds)) {
    fail(ExitCode::bad_input, "{}: seconds is {}, but the median of seconds_all is {}", where, number(row, "seconds"),
         measure::median(seconds));
  }
  if (is_peer) return;
  check_members(row, own_row_members, where);
  check_epochs(objects(row, "epochs"), where);
  for (const Json& run : objects(row, "runs")) {
    check_members(run, run_members, where + ", a run");
    check_epochs(run["epochs"], where);
  }
}

}  // namespace

Json new_record(const std::string& command, Device device) {
  return {{"schema", schema_name}, {"command", command}, {"environment", cli::environment(device)}};
}

Json describe_data(const cli::TrainingData& data) {
  return {{"name", data.train->info().name},
          {"synthetic", data.synthetic},
          {"train", data.train->info().count},
          {"test", data.test->info().count},
          {"source", data.source}};
}

void check_record(const Json& record, const std::string& source) {
  if (!record.is_object()) fail(ExitCode::bad_input, "{}: is not a JSON object", source);
  const Json& schema = member(record, "schema");
  const bool is_peer = schema == peer_schema_name;
  if (!is_peer && schema != schema_name) {
    fail(ExitCode::bad_input, "{}: its schema is '{}', expected {} or {}", source, label(record, "schema"), schema_name,
         peer_schema_name);
  }
  check_members(record, record_members, source);
  const Json& surroundings = record["environment"];
  if (is_peer) {
    check_members(surroundings, peer_environment_members, source + ": environment");
  } else {
    check_members(surroundings, environment_members, source + ": environment");
    if (!record.contains("command")) fail(ExitCode::bad_input, "{}: command is missing", source);
  }
  if (record.contains("data")) check_members(record["data"], data_members, source + ": data");
  for (const Json& table : member(record, "tables")) {
    check_table(table, fmt::format("{}: table '{}'", source, label(table, "title")));
  }
  const Json& command = member(record, "command");
  if (!is_peer && command != "train" && command != "techniques" && command != "peers") return;
  if (!record.contains("rows")) fail(ExitCode::bad_input, "{}: has no rows", source);
  for (const Json& row : record["rows"]) {
    check_row(row, is_peer, fmt::format("{}: row '{}'", source, label(row, "name")));
  }
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
  const Json& value = member_of_kind(object, name, Kind::number);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::string text(const Json& object, const char* name) {
  const Json& value = member_of_kind(object, name, Kind::text);
  return value.is_null() ? "" : value.get<std::string>();
}

bool flag(const Json& object, const char* name) { return member_of_kind(object, name, Kind::flag) == true; }

std::vector<double> numbers(const Json& object, const char* name) {
  std::vector<double> values;
  for (const Json& value : member_of_kind(object, name, Kind::numbers)) {
    if (!value.is_null()) values.push_back(value.get<double>());
  }
  return values;
}

std::vector<std::string> texts(const Json& object, const char* name) {
  const Json& values = member_of_kind(object, name, Kind::texts);
  return values.is_null() ? std::vector<std::string>() : values.get<std::vector<std::string>>();
}

const Json& part(const Json& object, const char* name) { return member_of_kind(object, name, Kind::object); }

const Json& list(const Json& object, const char* name) { return member_of_kind(object, name, Kind::list); }

const Json& objects(const Json& object, const char* name) {
  static const Json none = Json::array();
  const Json& values = member_of_kind(object, name, Kind::objects);
  return values.is_null() ? none : values;
}

}  // namespace hs::bench::report
