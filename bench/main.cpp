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

using namespace hs::bench::commands;
using hs::bench::cli::whom_to_tell;

constexpr hs::bench::cli::CommandEntry commands[] = {
    {"train", make_train_command, "Train a model and report time, accuracy and memory",
     "Train, and use what was trained"},
    {"evaluate", make_evaluate_command, "Test a trained model: accuracy, confusion matrix, worst mistakes"},
    {"predict", make_predict_command, "Say what a trained model sees in images"},
    {"generate", make_generate_command, "Write text as a trained model of a text does"},
    {"export", make_export_command,
     "Write a trained model, with its adapters if it has any, as ONNX, for NumPy or as one model"},
    {"techniques", make_techniques_command, "Measure every technique alone and together against a baseline",
     "Find what makes a training fast, or small"},
    {"improve", make_improve_command, "Find what reaches a target sooner, and judge it: a recipe"},
    {"profile", make_doctor_command, "Profile some steps and say what training is bound by"},
    {"profile kernels", make_explain_command, "Print one training step, kernel by kernel, with times and memory"},
    {"profile memory", make_memory_command, "Explain the memory of a training step, by purpose and over time"},
    {"tune kernels", make_tune_command, "Measure which kernel variants are fastest in a step, for --tuning"},
    {"tune lr", make_lr_find_command, "Find the range of useful learning rates in one short training"},
    {"scaling", make_scaling_command, "Time a training step over batch, samples, image, channels and threads"},
    {"scaling ranks", make_predict_ranks_command, "Predict the time of a step on 2 to 4,096 processes, by a model"},
    {"kernel build", make_kernel_build_command, "Compile a kernel of your own, one file, for --plugin",
     "Write a kernel outside of the tree"},
    {"judge", make_judge_command, "Judge a kernel: is it right, and how much faster than another"},
    {"bench gemm", make_kernel_command, "Verify and time every variant of the matrix product",
     "Measure one part, and other engines"},
    {"bench conv", make_kernel_command, "Verify and time every variant of the convolution"},
    {"bench ops", make_kernel_command, "Verify and time every variant of the other kernels"},
    {"bench loader", make_loader_command, "Measure loading: formats, caches, workers, depth, overlap"},
    {"bench f16", make_scaler_command, "Train in f16 with and without loss scaling and report the gradients"},
    {"bench peers", make_peers_command, "Measure other engines beside this one: use ./bench/run bench peers"},
    {"report", make_report_command, "Render a record again: table, Markdown, CSV, HTML", "Show records again"},
    {"compare", make_compare_command, "Compare two records, with a test of whether one is slower"},
    {"data get", make_get_command, "Download a data set that is known by its name", "Data, and this machine"},
    {"data convert", make_convert_command, "Write a data set in another format, or check that it can be read"},
    {"info", make_info_command, "Show the build, the machine and the kernels"},
};

int failed(hs::ExitCode code, const std::string& message) {
  hs::bench::cli::begin_last_line();
  hs::bench::cli::say_error(message);
  hs::bench::cli::wait_at_the_end();
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    hs::bench::cli::watch_signals();
    hs::bench::cli::prepare_console();
    hs::cpu_features();  // an invalid HALFSTEP_ISA fails every command
    hs::bench::cli::check_limits();
    hs::bench::cli::run_command_line(commands, argc, argv);
    return static_cast<int>(hs::ExitCode::ok);
  } catch (const hs::Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(hs::ExitCode::out_of_memory, "out of host memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return failed(hs::ExitCode::io, error.what());
  } catch (const std::exception& error) {
    return failed(hs::ExitCode::internal, std::string("internal error: ") + error.what() + whom_to_tell());
  } catch (...) {
    return failed(hs::ExitCode::internal, std::string("internal error: an unknown exception") + whom_to_tell());
  }
}
