// halfstep-bench bench gemm, bench conv and bench ops: every variant of a kernel, verified and then timed, the ladder
// from the simple one to the fastest. Their record has "peaks" and "kernels", one entry per slot, size and type: slot,
// sizes, type, flops, bytes, chosen, variants, and "slower_choices", one entry per kernel whose chosen variant is not
// the fastest by more than 5 %. Each variant has its relative_error and, if it is right, warm_seconds with its
// range, cold_seconds, rounds, and the rates with their fractions of the peaks.
//
// halfstep-bench kernel build: compiles a kernel outside of the tree into a plug-in, for --plugin.
#include "bench/cli/plugins.h"
#include "bench/commands/commands.h"
#include "bench/measure/kernel_timing.h"
#include "bench/measure/row.h"
#include "kernels/examples/op_table.h"

namespace hs::bench::commands {
namespace {

class KernelCommand : public RecordingCommand {
  int64_t batch_ = 64, rounds_ = 15, threads_ = 0;
  double seconds_ = 2;
  std::string device_ = "auto", type_ = "all";
  std::vector<std::string> plugins_;

  void declare(cli::Flags& flags) override {
    flags.examples({name(), name() + " --type bf16 --batch 256 --json kernels.json --html kernels.html"},
                   "docs/command_line.md says what the columns mean.");
    flags.batch(batch_, 65536);
    flags.choice("--type", own().unrecorded(), type_, {"all", "f32", "f16", "bf16"}, "Type of the tensors");
    flags.integer("--rounds", own(), rounds_, 3, 1000, "Turns of each variant");
    flags.real("--seconds", own(), seconds_, 0, 3600, "No new round of a kernel after this time");
    flags.threads(threads_).unrecorded();
    flags.device(device_).unrecorded();
    flags.plugins(plugins_);
  }

  std::vector<DType> types() const {
    std::vector<DType> wanted;
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      if (type_ == "all" || type_ == hs::name(type)) wanted.push_back(type);
    }
    return wanted;
  }

  // `gemm` has the linear layers, `conv` the convolutions, and `ops` all others.
  std::vector<examples::TimedCase> cases() const {
    std::vector<examples::TimedCase> cases = examples::timed_cases(batch_);
    std::erase_if(cases, [this](const examples::TimedCase& each) {
      const std::string kind = each.op == "linear" ? "gemm" : each.op.starts_with("conv2d") ? "conv" : "ops";
      return "bench " + kind != name();
    });
    return cases;
  }

  void run(const cli::Flags& flags) override {
    outputs_.open();
    cli::load_plugins(plugins_);
    const Device device = cli::resolve_device(device_);
    cli::use_threads(threads_);
    const measure::Peaks peaks = measure::measure_peaks(device);
    std::vector<measure::CaseTiming> timings;
    int wrong = 0;
    Json kernels = Json::array();
    for (const examples::TimedCase& kernel : cases()) {
      std::vector<std::vector<measure::CaseTiming>> by_type;
      for (const DType type : types())
        by_type.push_back(measure::time_kernels(kernel, type, device, {rounds_, seconds_}));
      for (size_t call = 0; call < by_type[0].size(); ++call) {
        for (auto& of_type : by_type) timings.push_back(std::move(of_type[call]));
      }
    }
    report::Rows rows{.table = {.left = 4}};
    for (const measure::CaseTiming& timing : timings) {
      kernels.push_back(to_json(timing, peaks, rows));
      for (const measure::VariantTiming& one : timing.variants) wrong += !one.wrong.empty();
    }
    for (auto& line : rows.table.lines) line.resize(rows.table.heads.size());
    Json record = report::new_record(name(), device, flags.config());
    record["peaks"] = {
        {"flops_per_second", peaks.flops}, {"flops_of", peaks.flops_of}, {"bytes_per_second", peaks.bytes}};
    record["choices"] = noted_choices();
    record["kernels"] = kernels;
    std::vector<std::string> remarks;
    record["slower_choices"] = slower_choices(timings, remarks);
    outputs_.finish(
        record,
        fmt::format("{}, batch {}, device {}, threads {}; peaks: {:.1f} GFLOP/s ({}), {:.1f} GB/s (a large copy)",
                    name(), batch_, hs::name(device), threads(), peaks.flops * 1e-9, peaks.flops_of,
                    peaks.bytes * 1e-9),
        {report::without_empty_columns(rows.table)}, remarks);
    if (wrong > 0) fail(ExitCode::internal, "{}: {} results are wrong; see the table", name(), wrong);
  }
};

class KernelBuildCommand : public cli::Command {
  std::vector<std::string> sources_;
  std::string output_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"kernel build my_relu.cpp              # writes my_relu.so", "bench ops --plugin my_relu.so",
         "train --plugin my_relu.so --kernel relu_forward=my_relu"},
        "By $CXX, or the first of c++, g++ and clang++ on the PATH; a .cu file by nvcc, or for the emulator\n"
        "where the program is built for it. docs/add_a_kernel.md says how to write one.");
    flags.words("FILE", sources_, 1, 1, "A .cpp or .cu file that includes <halfstep/kernel.h>");
    flags.text("--output", own().writes(), output_, "FILE", "The plug-in; by default named as FILE, with .so");
  }

  void run(const cli::Flags&) override {
    const std::filesystem::path source = sources_[0];
    const std::string output =
        output_.empty() ? std::filesystem::path(source).replace_extension(".so").string() : output_;
    const auto start = Clock::now();
    OutputFile out(output, "--output");
    cli::build_plugin(source, out);
    cli::write_stdout(fmt::format("{}: built in {:.1f} s\n", output, seconds_since(start)));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_kernel_command() { return std::make_unique<KernelCommand>(); }
std::unique_ptr<cli::Command> make_kernel_build_command() { return std::make_unique<KernelBuildCommand>(); }

}  // namespace hs::bench::commands
