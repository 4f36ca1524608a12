#include "bench/report/record.h"

#include <algorithm>
#include <limits>

#include "bench/cli/environment.h"
#include "bench/cli/plugins.h"
#include "bench/report/schema.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs::bench::report {

Json new_record(const std::string& command, Device device, const Json& config, const Json& data) {
  Json record = {{"schema", schema_name}, {"command", command}, {"environment", cli::environment(device)}};
  if (!cli::loaded_plugins().empty()) record["plugins"] = cli::describe_plugins();
  if (!data.is_null()) record["data"] = data;
  if (!config.is_null()) record["config"] = config;
  return record;
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
  const std::string size = cli::size_text(data.choice);
  all["choice"] = {{"data", data.choice.name},
                   {"size", size.empty() ? Json(nullptr) : Json(size)},
                   {"test_split", data.choice.test_split}};
  return all;
}

void check_record(const Json& record, const std::string& source) {
  const Json& schema = member(record, "schema");
  if (schema != schema_name && schema != peer_schema_name) {
    const std::string found = schema.dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(ExitCode::bad_input, "{}: schema is {:.40}, expected {} or {}", source, found, schema_name, peer_schema_name);
  }
  check_members(record, source);
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
  const Json& value = member(object, name);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

bool flag(const Json& object, const char* name) { return member(object, name) == true; }

std::vector<double> numbers(const Json& object, const char* name) {
  std::vector<double> values;
  for (const Json& value : member(object, name)) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  return values;
}

std::vector<std::string> texts(const Json& object, const char* name) {
  std::vector<std::string> values;
  for (const Json& value : member(object, name)) {
    if (value.is_string()) values.push_back(value.get<std::string>());
  }
  return values;
}

const Json& part(const Json& object, const char* name) {
  static const Json null;
  const Json& value = member(object, name);
  return value.is_object() ? value : null;
}

const Json& objects(const Json& object, const char* name) {
  static const Json none = Json::array();
  const Json& values = member(object, name);
  const auto is_object = [](const Json& value) { return value.is_object(); };
  return values.is_array() && std::ranges::all_of(values, is_object) ? values : none;
}

}  // namespace hs::bench::report
