#include "bench/report/schema.h"

#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

// By the schema's or the command's name: "every" of all records, and "timed" of those whose rows are timed runs.
const char* const shapes = R"({
  "every": {
    "command": "string", "headline": "string", "remarks": ["string"],
    "environment!": {
      "cpu!": "string", "cores!": "number", "threads!": "number", "device!": "string", "os": "string",
      "compiler": "string", "commit": "string", "date": "string", "isa_cap": "string", "torch": "string",
      "device_facts": {"name": "string"}
    },
    "data": {"name!": "string", "synthetic": "boolean", "train": "number", "test": "number"},
    "config": {"model": "string"},
    "energy": {"why_not": "string"},
    "rows": [{}],
    "calls": [{}],
    "absent": [{"name": "string", "reason": "string"}],
    "tables": [{"title": "string", "left": "number", "heads!": ["string"], "lines!": [["string"]]}]
  },
  "timed": {
    "rows!": [{
      "name!": "string", "group": "string", "seconds!": "number", "seconds_all!": ["number"], "seconds_low": "number",
      "seconds_high": "number", "samples_per_second!": "number", "test_accuracy!": "number",
      "test_accuracy_all": ["number"], "final_loss!": "number", "peak_bytes": "number", "stall_share": "number",
      "speed_up": "number", "ratio": "number", "ratio_low": "number", "ratio_high": "number", "bytes_ratio": "number",
      "verdict": "string", "for_memory": "boolean", "error": "string", "target": {}, "cost": {},
      "precision": "string", "mode": "string", "channels_last": "boolean"
    }]
  },
  "train": {
    "config": {
      "target_accuracy": "number", "price_per_hour": "number", "batch": "number", "accumulate": "number",
      "learning_rate": "number", "warmup": "number", "schedule": "string", "precision": "string",
      "warmed_up": "boolean", "kernels": ["string"]
    },
    "rows": [{
      "experiment": {"precision": "string"},
      "epochs": [{"seconds": "number", "test_accuracy": "number"}],
      "runs": [{
        "seed": "number", "steps": "number", "skipped_steps": "number", "loss_scale": "number",
        "epochs": [{"seconds": "number", "test_accuracy": "number"}]
      }],
      "parts": {"*": "number"},
      "written": {"temperature": "number", "text": "string"},
      "step": {
        "purposes": [{"name": "string", "live_bytes": ["number"]}],
        "lanes": [{"name": "string", "spans": [{"name": "string", "start": "number", "end": "number"}]}]
      },
      "steps": "number",
      "scale": {"first": "number", "changes": [{"after_step": "number", "scale": "number"}]},
      "saving": {"saved": "number", "failed": "number", "share": "number"}
    }]
  },
  "peers": {"engines": {"*": {"version": "string"}}},
  "kernels": {
    "kernels": [{
      "slot": "string", "sizes": "string", "type": "string", "chosen": "string",
      "variants": [{
        "variant": "string", "warm_seconds": "number", "warm_seconds_range": ["number"],
        "share_of_peak_flops": "number", "share_of_peak_bytes": "number"
      }]
    }]
  },
  "memory": {
    "rows": [{
      "precision": "string", "checkpoint": "string", "accumulate": "number", "peak_bytes": "number",
      "step_ms": "number", "timeline": {"points": [{"live": {"*": "number"}}]}
    }],
    "curve": [{"peak_bytes": "number", "step_ms": "number"}]
  },
  "loader": {
    "formats": [{"name": "string", "warm_samples_per_second": "number"}],
    "rows": [{
      "format": "string", "cache": "string", "workers": "number", "prefetch": "number",
      "samples_per_second": "number", "stall_share": "number"
    }],
    "timelines": [{"name": "string", "spans": [[]]}]
  },
  "predict-ranks": {
    "rows": [{
      "kind": "string", "ranks": "number", "efficiency": "number", "predicted_seconds": "number",
      "seconds": "number", "seconds_low": "number", "seconds_high": "number"
    }]
  },
  "scaler": {"rows": [{"name": "string", "gradients": [{"name": "string", "kind": "string", "zero": "number"}]}]},
  "lr-find": {"rows": [{"learning_rate": "number", "loss": "number", "smoothed": "number"}]},
  "explain": {
    "calls": [{
      "kernel": "string", "phase": "string", "shapes": ["string"], "milliseconds": "number", "begin_ms": "number",
      "live_bytes": "number"
    }]
  },
  "tune": {"calls": [{"call": "string", "chosen": "string", "fastest": "string", "taken": "string"}]},
  "doctor": {
    "verdict": {"name": "string", "reason": "string", "advice": "string"},
    "rows": [{"name": "string", "milliseconds": "number", "share": "number"}]
  },
  "compare": {
    "rows": [{"name": "string", "seconds_before": "number", "seconds_after": "number", "verdict": "string"}]
  },
  "evaluate": {
    "rows": [{"name": "string", "samples": "number", "right": "number"}],
    "mistakes": [{
      "sample": "number", "label": "number", "predicted": "number", "probability": "number", "columns": "number",
      "channels": "number", "pixels": ["number"]
    }]
  }
})";

std::vector<std::string> shapes_of(const Json& record) {
  const std::string command = text(record, "command");
  if (text(record, "schema") == peer_schema_name) return {"every", "timed"};
  if (command == "train" || command == "techniques") return {"every", "timed", "train"};
  if (command == "peers") return {"every", "timed", "peers"};
  if (command == "gemm" || command == "conv" || command == "ops") return {"every", "kernels"};
  if (command == "scale") return {"every", "predict-ranks"};  // as records have it that are older than the name
  return {"every", command};
}

// `path` is where the value stands; it is the same again afterwards.
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

}  // namespace

void check_shape(const Json& value, const Json& shape, const std::string& where) {
  std::string path;
  check(value, shape, true, where, path);
}

void check_members(const Json& record, const std::string& where) {
  static const Json all = Json::parse(shapes);
  for (const std::string& name : shapes_of(record)) {
    if (all.contains(name)) check_shape(record, all[name], where);
  }
}

}  // namespace hs::bench::report
