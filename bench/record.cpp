#include "bench/record.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>

#include "bench/environment.h"
#include "bench/statistics.h"
#include "bench/table.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

enum class Kind { text, flag, count, amount, share, object, list, amounts, shares };

struct Member {
  const char* name;
  Kind kind;
  bool required;
};

constexpr Member record_members[] = {
    {"schema", Kind::text, true},   {"command", Kind::text, true},   {"environment", Kind::object, true},
    {"data", Kind::object, false},  {"config", Kind::object, false}, {"rows", Kind::list, false},
    {"absent", Kind::list, false},  {"headline", Kind::text, false}, {"tables", Kind::list, false},
    {"remarks", Kind::list, false},
};
constexpr Member table_members[] = {
    {"title", Kind::text, false},
    {"left", Kind::count, false},
    {"heads", Kind::list, true},
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
    {"runs", Kind::list, false},
    {"epochs", Kind::list, false},
    {"target", Kind::object, false},
};
constexpr Member run_members[] = {
    {"seed", Kind::count, true},
    {"evaluation_seconds", Kind::amount, true},
    {"epochs", Kind::list, true},
};
constexpr Member epoch_members[] = {
    {"training_loss", Kind::amount, true},
    {"test_loss", Kind::amount, true},
    {"test_accuracy", Kind::share, true},
    {"seconds", Kind::amount, true},
};

template <class Test>
bool is_list_of(const Json& value, Test test) {
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    if (!item.is_null() && !test(item)) return false;
  }
  return true;
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
    case Kind::amounts:
      return "a list of numbers from 0";
    case Kind::shares:
      return "a list of numbers from 0 to 1";
  }
  return "";
}

bool fits(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::text:
      return value.is_string();
    case Kind::flag:
      return value.is_boolean();
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
    case Kind::amounts:
      return is_list_of(value, is_amount);
    case Kind::shares:
      return is_list_of(value, is_share);
  }
  return false;
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
    fail(ExitCode::bad_input, "{}: {} is {}, expected {}", where, member.name,
         found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40), expected(member.kind));
  }
}

void check_texts(const Json& texts, const std::string& where) {
  for (const Json& one : texts) {
    if (one.is_string()) continue;
    fail(ExitCode::bad_input, "{}: {} is no text", where,
         one.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
  }
}

void check_table(const Json& table, const std::string& where) {
  check_members(table, table_members, where);
  const Json& heads = table["heads"];
  if (heads.empty()) fail(ExitCode::bad_input, "{}: has no heads", where);
  check_texts(heads, where + ": heads");
  for (const Json& line : table["lines"]) {
    if (!line.is_array() || line.size() != heads.size()) {
      fail(ExitCode::bad_input, "{}: a line of {} cells under {} heads", where, line.size(), heads.size());
    }
    check_texts(line, where + ": a line");
    for (const Json& cell : line) {
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
  if (!seconds.empty() && std::abs(number(row, "seconds") - median(seconds)) > 1e-9 * median(seconds)) {
    fail(ExitCode::bad_input, "{}: seconds is {}, but the median of seconds_all is {}", where, number(row, "seconds"),
         median(seconds));
  }
  if (is_peer) return;
  check_members(row, own_row_members, where);
  check_epochs(member(row, "epochs"), where);
  for (const Json& run : member(row, "runs")) {
    check_members(run, run_members, where + ", a run");
    check_epochs(run["epochs"], where);
  }
}

}  // namespace

Json new_record(const std::string& command, Device device) {
  return {{"schema", schema_name}, {"command", command}, {"environment", environment(device)}};
}

Json describe_data(const TrainingData& data) {
  return {{"name", data.train->info().name},
          {"synthetic", data.synthetic},
          {"train", data.train->info().count},
          {"test", data.test->info().count},
          {"source", data.source}};
}

Json describe_data(const DatasetPair& data) {
  return {{"name", data.train.name},
          {"synthetic", data.train.synthetic},
          {"train", data.train.count},
          {"test", data.test.count},
          {"source", data.source}};
}

void check_record(const Json& record, const std::string& source) {
  if (!record.is_object()) fail(ExitCode::bad_input, "{}: is not a JSON object", source);
  const std::string schema = text(record, "schema");
  const bool is_peer = schema == peer_schema_name;
  if (!is_peer && schema != schema_name) {
    fail(ExitCode::bad_input, "{}: its schema is '{}', expected {} or {}", source, schema, schema_name,
         peer_schema_name);
  }
  if (!is_peer) check_members(record, record_members, source);
  const Json& surroundings = member(record, "environment");
  if (is_peer) {
    check_members(surroundings, peer_environment_members, source + ": environment");
  } else {
    check_members(surroundings, environment_members, source + ": environment");
  }
  if (record.contains("data")) check_members(record["data"], data_members, source + ": data");
  for (const Json& table : member(record, "tables")) {
    check_table(table, fmt::format("{}: table '{}'", source, table.is_object() ? text(table, "title") : ""));
  }
  check_texts(member(record, "remarks"), source + ": remarks");
  const std::string command = text(record, "command");
  if (!is_peer && command != "train" && command != "techniques" && command != "peers") return;
  if (!record.contains("rows") || !record["rows"].is_array()) fail(ExitCode::bad_input, "{}: has no rows", source);
  for (const Json& row : record["rows"]) {
    check_row(row, is_peer, fmt::format("{}: row '{}'", source, row.is_object() ? text(row, "name") : ""));
  }
}

std::string read_text(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) fail(ExitCode::io, "{}: is a directory, expected a file", path.string());
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) fail(ExitCode::io, "{}: cannot be read: {}", path.string(), std::strerror(errno));
  return bytes;
}

Json read_record(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  Json record;
  try {
    record = Json::parse(bytes);
  } catch (const Json::parse_error& error) {
    fail(ExitCode::bad_input, "{}: is not JSON, at byte {} of {}", path.string(), error.byte, bytes.size());
  }
  check_record(record, path.string());
  return record;
}

const Json& member(const Json& object, const char* name) {
  static const Json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

double number(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<double> numbers(const Json& object, const char* name) {
  std::vector<double> values;
  for (const Json& value : member(object, name)) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  return values;
}

}  // namespace hs::bench
