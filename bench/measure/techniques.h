// The techniques that `halfstep-bench techniques` measures, each one line of the table in techniques.cpp, and what its
// record says to do.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/measure/row.h"

namespace hs::bench::measure {

struct Technique {
  const char* name;
  const char* idea;                       // one line, for --list
  bool for_memory;                        // its purpose is to save memory: compare it by bytes
  void (*apply)(Experiment& experiment);  // enables the technique
  // The setting that apply() chose, for people: "bf16", "4 x 16".
  std::string (*detail)(const Experiment& experiment) = nothing;
  // The flags of `train` that apply() stands for; empty where they are on by default.
  std::string (*flags)(const Experiment& experiment) = nothing;

  static std::string nothing(const Experiment&) { return ""; }
};

const std::vector<Technique>& techniques();

// Disables every technique of the table.
Experiment baseline(Experiment experiment);

struct TechniqueRow {
  std::string group;  // "baseline", "alone" (baseline and this one) or "cumulative" (this one and all before it)
  bool for_memory;
  Experiment experiment;
  std::string flags;  // of the technique alone, see Technique
  Row measured;       // its name is "cache", "mixed precision (bf16)"
  Json kernels = {};  // that ran
};

struct Plan {
  std::vector<TechniqueRow> rows;  // the baseline is first
  Json absent = Json::array();     // {"name", "reason"} of techniques without a row
};

// The baseline, each technique alone, and each together with all before it; the first technique has one row for both.
Plan make_plan(const Experiment& base);

// CUDA: f16. CPU: bf16 if it multiplies bf16 in hardware (AVX512-BF16, AMX), otherwise f16.
Precision half_precision(Device device);

// What a record of `techniques` says to do, in sentences: the answer that its tables leave to the reader.
// From rows in their order, each with group, train_flags and on_by_default: what of train's flags to add here, what is
// on already, what saves memory and what to leave out, each with the ratio of times to the row before it, which differs
// in this technique alone; what saves memory with all flags before it, beside what is on already. `command`: what these
// flags are added to, "train --model mlp".
std::vector<std::string> advice(const Json& rows, const std::string& command);

// "WHAT: PART; PART.": a line more of an answer, unless there is no part.
void add_line(std::vector<std::string>& lines, const char* what, const std::vector<std::string>& parts);

// Puts the lines into the record's "answer", and one more if its environment had a load of more than half of the cores
// before the measurement began.
void put_answer(Json& record, std::vector<std::string> lines);

}  // namespace hs::bench::measure
