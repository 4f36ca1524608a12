// halfstep-bench: trains, measures, reports. Every failure ends here as one line on stderr and an exit code from the
// table in engine/error.h. Read next: bench/commands/train_command.cpp.
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "bench/cli/console.h"
#include "bench/cli/interrupt.h"
#include "bench/commands/commands.h"
#include "engine/cpu_features.h"
#include "engine/error.h"

namespace {

int failed(hs::ExitCode code, const std::string& message) {
  hs::bench::cli::begin_last_line();
  hs::bench::cli::say_error(message);
  hs::bench::cli::wait_at_the_end();
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hs::bench::commands;
  try {
    hs::bench::cli::watch_signals();
    hs::bench::cli::prepare_console();
    hs::cpu_features();  // an invalid HALFSTEP_ISA fails every command
    hs::bench::cli::check_limits();
    hs::bench::cli::Commands commands;
    for (const auto make :
         {make_train_command,  make_techniques_command,    make_info_command,     make_convert_command,
          make_scaler_command, make_gemm_command,          make_conv_command,     make_ops_command,
          make_tune_command,   make_scaling_command,       make_lr_find_command,  make_explain_command,
          make_doctor_command, make_loader_command,        make_memory_command,   make_peers_command,
          make_report_command, make_compare_command,       make_predict_command,  make_evaluate_command,
          make_export_command, make_predict_ranks_command, make_generate_command, make_merge_command}) {
      commands.push_back(make());
    }
    hs::bench::cli::run_command_line(commands, argc, argv);
    return static_cast<int>(hs::ExitCode::ok);
  } catch (const hs::Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(hs::ExitCode::out_of_memory, "out of host memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return failed(hs::ExitCode::io, error.what());
  } catch (const std::exception& error) {
    return failed(hs::ExitCode::internal, std::string("internal error: ") + error.what());
  } catch (...) {
    return failed(hs::ExitCode::internal, "internal error: an exception of an unknown type");
  }
}
