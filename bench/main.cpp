// halfstep-bench: trains, measures, reports. Every failure ends here as one line on stderr and an exit code from the
// table in engine/error.h. Read next: bench/train_command.cpp.
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "bench/commands.h"
#include "bench/console.h"
#include "bench/interrupt.h"
#include "engine/cpu_features.h"
#include "engine/error.h"

namespace {

int failed(hs::ExitCode code, const std::string& message) {
  hs::bench::begin_last_line();
  hs::bench::notice(message);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    hs::bench::watch_signals();
    hs::bench::prepare_console();
    hs::cpu_features();  // a wrong HALFSTEP_ISA ends every command
    hs::bench::check_limits();
    hs::bench::Commands commands;
    commands.push_back(hs::bench::make_train_command());
    commands.push_back(hs::bench::make_techniques_command());
    commands.push_back(hs::bench::make_info_command());
    commands.push_back(hs::bench::make_convert_command());
    commands.push_back(hs::bench::make_scaler_command());
    commands.push_back(hs::bench::make_gemm_command());
    commands.push_back(hs::bench::make_conv_command());
    commands.push_back(hs::bench::make_ops_command());
    commands.push_back(hs::bench::make_explain_command());
    commands.push_back(hs::bench::make_doctor_command());
    commands.push_back(hs::bench::make_loader_command());
    commands.push_back(hs::bench::make_memory_command());
    commands.push_back(hs::bench::make_peers_command());
    commands.push_back(hs::bench::make_report_command());
    commands.push_back(hs::bench::make_compare_command());
    hs::bench::run_command_line(commands, argc, argv);
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
