#include "bench/report/record.h"

#include <algorithm>
#include <limits>

#include "bench/cli/command_line.h"
#include "bench/cli/environment.h"
#include "bench/cli/plugins.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs::bench::report {
namespace {

// A shape is written like what it describes: {"rows!": [{"name!": "string", "parts": {"*": "number"}}]}. A leaf is the
// name of a type, [] and {} are of anything, "*" stands for every member, and a name that ends in ! for one that must
// be there. What may be missing may be null, and so may every number: it was not measured. Members that the shape does
// not name are passed over.
//
// What a member holds, in records of all commands; "timed": what the rows of train, techniques, peers and report have;
// "ours": what a peer's records hold otherwise; "kernels": where it is a list, of gemm, conv and ops.
const char* const shapes = R"({
  "every": {
    "command": "string", "headline": "string", "running": "boolean", "answer": ["string"], "remarks": ["string"],
    "environment!": {
      "cpu!": "string", "cores!": "number", "threads!": "number", "device!": "string", "os": "string",
      "compiler": "string", "commit": "string", "date": "string", "isa_cap": "string", "torch": "string",
      "device_facts": {"name": "string"}
    },
    "data": {"name!": "string", "synthetic": "boolean", "train": "number", "test": "number"},
    "config": {
      "model": "string", "target": "string", "price_per_hour": "number", "batch": "number",
      "accumulate": "number", "learning_rate": "number", "warmup": "number", "schedule": "string",
      "precision": "string", "warmed_up": "boolean", "kernels": ["string"],
      "before": "string", "after": "string"
    },
    "plugins": [{"file": "string", "sha256": "string", "variants": ["string"]}],
    "sides": [{}],
    "engines": {"*": {"version": "string"}},
    "verdict": {"name": "string", "reason": "string", "advice": "string"},
    "switches": [{"flags": "string", "verdict": "string"}],
    "absent": [{"name": "string", "reason": "string"}],
    "tables": [{"title": "string", "left": "number", "heads!": ["string"], "lines!": [["string"]]}],
    "rows": [{
      "name": "string", "group": "string", "train_flags": "string", "on_by_default": "boolean",
      "seconds": "number", "seconds_all": ["number"], "seconds_low": "number",
      "seconds_high": "number", "samples_per_second": "number", "test_accuracy": "number",
      "test_accuracy_all": ["number"], "final_loss": "number", "peak_bytes": "number", "stall_share": "number",
      "speed_up": "number", "ratio": "number", "ratio_low": "number", "ratio_high": "number", "bytes_ratio": "number",
      "verdict": "string", "for_memory": "boolean", "error": "string", "lost_runs": "number", "cost": {},
      "target": {"seconds_all": ["number"]},
      "precision": "string", "mode": "string", "channels_last": "boolean", "experiment": {"precision": "string"},
      "parts": {"*": "number"},
      "course": [{"seconds": "number", "loss": "number", "wait": "number", "compute": "number"}], "written": {"temperature": "number", "text": "string"},
      "step": {
        "purposes": [{"name": "string", "live_bytes": ["number"]}],
        "lanes": [{"name": "string", "spans": [{"name": "string", "start": "number", "end": "number"}]}]
      },
      "steps": "number", "scale": {"first": "number", "changes": [{"after_step": "number", "scale": "number"}]},
      "saving": {"saved": "number", "failed": "number", "share": "number"},
      "checkpoint": "string", "accumulate": "number", "step_ms": "number",
      "timeline": {"points": [{"live": {"*": "number"}}]}, "format": "string", "cache": "string", "workers": "number",
      "prefetch": "number", "kind": "string", "efficiency": "number", "predicted_seconds": "number",
      "gradients": [{"name": "string", "zero": "number"}], "learning_rate": "number",
      "loss": "number", "smoothed": "number", "milliseconds": "number", "share": "number",
      "seconds_before": "number", "seconds_after": "number", "samples": "number", "right": "number", "settings": {}
    }],
    "peaks": {"flops_per_second": "number", "bytes_per_second": "number"},
    "calls": [{
      "kernel": "string", "phase": "string", "variant": "string", "shapes": ["string"], "milliseconds": "number",
      "begin_ms": "number", "flops": "number", "bytes": "number", "live_bytes": "number", "call": "string",
      "chosen": "string", "fastest": "string", "taken": "string"
    }],
    "verdicts": [{
      "slot": "string", "variant": "string", "device": "string", "refused_by": "string", "reason": "string",
      "text": "string", "seconds": "number", "checks": [{"name": "string", "runs": "number"}],
      "timed": [{
        "call": "string", "against": "string", "seconds": "number", "seconds_against": "number", "rounds": "number",
        "ratio": "number", "ratio_low": "number", "ratio_high": "number"
      }]
    }],
    "curve": [{"peak_bytes": "number", "step_ms": "number"}],
    "formats": [{"name": "string", "warm_samples_per_second": "number"}],
    "timelines": [{"name": "string", "spans": [[]]}],
    "mistakes": [{
      "sample": "number", "label": "number", "predicted": "number", "probability": "number", "columns": "number",
      "channels": "number", "pixels": ["number"]
    }]
  },
  "timed": {
    "rows!": [{
      "name!": "string", "seconds!": "number", "seconds_all!": ["number"], "samples_per_second!": "number",
      "test_accuracy!": "number", "final_loss!": "number"
    }]
  },
  "ours": {
    "rows": [{
      "epochs": [{"seconds": "number", "test_accuracy": "number"}],
      "runs": [{
        "seed": "number", "steps": "number", "skipped_steps": "number", "loss_scale": "number",
        "evaluation_seconds": "number", "validations": [{"seconds": "number"}],
        "epochs": [{"seconds": "number", "test_accuracy": "number", "test_loss": "number"}]
      }]
    }]
  },
  "kernels": {
    "kernels": [{
      "slot": "string", "sizes": "string", "type": "string", "chosen": "string",
      "variants": [{
        "variant": "string", "warm_seconds": "number", "warm_seconds_range": ["number"],
        "share_of_peak_flops": "number", "share_of_peak_bytes": "number"
      }]
    }]
  }
})";

// Throws Error (bad_input) that names the first wrong member: "WHERE: rows[2].name is 5, expected string". `path` is
// where the value stands; it is the same again afterwards.
void check(const Json& value, const Json& shape, bool is_needed, const std::string& where, std::string& path) {
  const std::string type = shape.is_string() ? shape.get<std::string>() : shape.type_name();
  if (value.is_null() && (!is_needed || type == "number")) return;
  if (value.type_name() != type) {
    const std::string found = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(ExitCode::bad_input, "{}: {} is {:.40}, expected {}", where, path.empty() ? "all of it" : path, found, type);
  }
  const size_t length = path.size();
  const auto check_inside = [&](const std::string& step, const Json& inside, const Json& its_shape, bool needed) {
    path += path.empty() && step[0] == '.' ? step.substr(1) : step;
    check(inside, its_shape, needed, where, path);
    path.resize(length);
  };
  if (shape.is_array() && !shape.empty()) {
    for (size_t i = 0; i < value.size(); ++i) check_inside(fmt::format("[{}]", i), value[i], shape[0], true);
  }
  if (!shape.is_object()) return;
  for (const auto& [key, inside] : shape.items()) {
    const bool needed = key.ends_with('!');
    const std::string name = key.substr(0, key.size() - needed);
    if (name == "*") {
      for (const auto& [each, item] : value.items()) check_inside("." + each, item, inside, false);
    } else if (const auto found = value.find(name); found != value.end()) {
      check_inside("." + name, *found, inside, needed);
    } else if (needed) {
      fail(ExitCode::bad_input, "{}: {}{}{} is missing", where, path, path.empty() ? "" : ".", name);
    }
  }
}

// Those values of a list that are of a type.
template <class T>
std::vector<T> all_of(const Json& object, const char* name, bool (Json::*is_one)() const noexcept) {
  std::vector<T> values;
  for (const Json& value : member(object, name)) {
    if ((value.*is_one)()) values.push_back(value.get<T>());
  }
  return values;
}

}  // namespace

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
  if (info.type != DType::u8) {
    all["type"] = hs::name(info.type);
  } else if (!info.is_text()) {
    all["scale"] = {{"mean", cli::as_written(info.scale.mean)}, {"deviation", cli::as_written(info.scale.deviation)}};
  }
  if (!info.class_names.empty()) all["class_names"] = info.class_names;
  const std::string size = cli::size_text(data.choice);
  all["choice"] = {{"data", data.choice.name},
                   {"size", size.empty() ? Json(nullptr) : Json(size)},
                   {"test_split", data.choice.test_split},
                   {"skip_damaged", data.choice.skip_damaged}};
  if (data.choice.skip_damaged) all["left_out"] = data.left_out.count;
  return all;
}

void check_record(const Json& record, const std::string& source) {
  static const Json all = Json::parse(shapes);
  const Json& schema = member(record, "schema");
  const bool is_peer = schema == peer_schema_name;
  if (schema != schema_name && !is_peer) {
    const std::string found = schema.dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(ExitCode::bad_input, "{}: schema is {:.40}, expected {} or {}", source, found, schema_name, peer_schema_name);
  }
  std::string path;
  const auto check_against = [&](const char* shape) { check(record, all[shape], true, source, path); };
  check_against("every");
  const std::string command = text(record, "command");
  if (is_peer || command == "train" || command == "techniques" || command == "bench peers" || command == "report") {
    check_against("timed");
  }
  if (!is_peer) check_against("ours");
  if (member(record, "kernels").is_array()) check_against("kernels");
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
  return all_of<double>(object, name, &Json::is_number);
}

std::vector<std::string> texts(const Json& object, const char* name) {
  return all_of<std::string>(object, name, &Json::is_string);
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
