#include "bench/report/schema.h"

#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

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
      "model": "string", "target": "string", "target_accuracy": "number", "price_per_hour": "number", "batch": "number",
      "accumulate": "number", "learning_rate": "number", "warmup": "number", "schedule": "string",
      "precision": "string", "warmed_up": "boolean", "kernels": ["string"],
      "before": "string", "after": "string"
    },
    "plugins": [{"file": "string", "sha256": "string", "variants": ["string"]}],
    "sides": [{}],
    "energy": {"why_not": "string"},
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
      "verdict": "string", "for_memory": "boolean", "error": "string", "cost": {},
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
      "gradients": [{"name": "string", "kind": "string", "zero": "number"}], "learning_rate": "number",
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
  const std::string command = text(record, "command");
  const bool is_peer = text(record, "schema") == peer_schema_name;
  check_shape(record, all["every"], where);
  if (is_peer || command == "train" || command == "techniques" || command == "peers" || command == "report") {
    check_shape(record, all["timed"], where);
  }
  if (!is_peer) check_shape(record, all["ours"], where);
  if (member(record, "kernels").is_array()) check_shape(record, all["kernels"], where);
}

}  // namespace hs::bench::report
