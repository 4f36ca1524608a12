// The techniques that `halfstep-bench techniques` measures: one line of the table in techniques.cpp each.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/measure/experiment.h"

namespace hs::bench::measure {

struct Technique {
  const char* name;
  const char* idea;  // one line, for --list
  bool for_memory;   // made to save memory: to be judged by bytes
  // Switches it on. Returns an empty string, or why this machine or experiment cannot have it.
  std::string (*apply)(Experiment& experiment);
  // What exactly is switched on here, for people: "bf16", "4 x 16".
  std::string (*detail)(const Experiment& experiment);
};

const std::vector<Technique>& techniques();

// Switches off every technique that there is a row for.
Experiment baseline(Experiment experiment);

struct TechniqueRow {
  std::string name;   // "cache", "mixed precision (bf16)"
  std::string group;  // "baseline", "alone" (baseline and this one) or "cumulative" (and all before it)
  bool for_memory = false;
  Experiment experiment;
};

struct Plan {
  std::vector<TechniqueRow> rows;  // the baseline first
  Json absent = Json::array();     // {"name", "reason"} of techniques without rows
};

// The baseline, each technique alone, and all of them up to each; the first has one row for both.
Plan make_plan(const Experiment& base);

// CUDA: f16. CPU: bf16 where it multiplies bf16 (AVX512-BF16, AMX), else f16.
Precision half_precision(Device device);

}  // namespace hs::bench::measure
