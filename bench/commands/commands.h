// The commands, and what most are made of: flags, data, messages, figures, a record and its files. A new one is a file
// of its own, a line here and a line in main.cpp.
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

std::unique_ptr<cli::Command> make_train_command();
std::unique_ptr<cli::Command> make_info_command();
std::unique_ptr<cli::Command> make_convert_command();
std::unique_ptr<cli::Command> make_scaler_command();
std::unique_ptr<cli::Command> make_kernel_command();  // by its name: gemm, conv or ops
std::unique_ptr<cli::Command> make_kernel_build_command();
std::unique_ptr<cli::Command> make_tune_command();
std::unique_ptr<cli::Command> make_scaling_command();
std::unique_ptr<cli::Command> make_predict_ranks_command();
std::unique_ptr<cli::Command> make_lr_find_command();
std::unique_ptr<cli::Command> make_explain_command();
std::unique_ptr<cli::Command> make_judge_command();
std::unique_ptr<cli::Command> make_improve_command();
std::unique_ptr<cli::Command> make_doctor_command();
std::unique_ptr<cli::Command> make_loader_command();
std::unique_ptr<cli::Command> make_memory_command();
std::unique_ptr<cli::Command> make_techniques_command();
std::unique_ptr<cli::Command> make_peers_command();
std::unique_ptr<cli::Command> make_report_command();
std::unique_ptr<cli::Command> make_compare_command();
std::unique_ptr<cli::Command> make_predict_command();
std::unique_ptr<cli::Command> make_evaluate_command();
std::unique_ptr<cli::Command> make_generate_command();
std::unique_ptr<cli::Command> make_export_command();

}  // namespace hs::bench::commands
