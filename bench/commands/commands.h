// The commands, and what most are made of: flags, data, messages, figures, a record and its files. A new one is a file
// of its own, a name here and a line in main.cpp.
#pragma once

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/statistics.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/printable.h"

namespace hs::bench::commands {

using cli::Group, cli::own;  // the group under which --help lists a flag; own(): this command's

// A command that measures: its results are a record, in the files that --json and its kind name.
class RecordingCommand : public cli::Command {
 protected:
  report::Outputs outputs_;
  void declare_outputs(cli::Flags& flags) override { outputs_.declare(flags); }
};

inline constexpr const char* while_measuring = "while measuring; no results were written";
// Ends the program if a signal has come.
inline void check_signals() { cli::check_signals(while_measuring); }

// The flags of `train`, for commands that run it or read its records.
class TrainFlags : public cli::Flags {
 public:
  TrainFlags();

 private:
  const std::unique_ptr<cli::Command> train_;
};

// The flags of `train` in a line, words at spaces that are not within quotes, as flag and words. Throws Error (usage)
// for what train itself would refuse before it trains, and for flags that whoever repeats the run decides.
Json train_settings(const std::string& line);
// The record of one run with these settings (cli::Flags::settings()) and a seed, in a process of its own; of one too
// that missed its target. Ends as the training does: throws Error with its code and its last words. The caller has
// called allow_to_finish().
Json train_once(const Json& settings, uint64_t seed);

// `bench gemm`, `conv` and `ops` share make_kernel_command().
std::unique_ptr<cli::Command> make_compare_command(), make_convert_command(), make_doctor_command(),
    make_evaluate_command(), make_explain_command(), make_export_command(), make_generate_command(), make_get_command(),
    make_improve_command(), make_info_command(), make_judge_command(), make_kernel_build_command(),
    make_kernel_command(), make_loader_command(), make_lr_find_command(), make_memory_command(), make_peers_command(),
    make_predict_command(), make_predict_ranks_command(), make_report_command(), make_scaler_command(),
    make_scaling_command(), make_techniques_command(), make_train_command(), make_tune_command();

}  // namespace hs::bench::commands
