// halfstep-bench doctor: a short profile of training and one verdict, what it is bound by and which switch to try next.
// Its record has "peaks", "profile" (milliseconds of a step), "rows" (its parts: name, milliseconds, share) and
// "verdict".
#include <fmt/format.h>

#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/loading_flags.h"
#include "bench/commands/commands.h"
#include "bench/measure/doctor.h"
#include "bench/measure/one_step.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "data/loader/loader.h"
#include "engine/check.h"
#include "engine/parallel.h"

namespace hs::bench::commands {
namespace {

class DoctorCommand : public cli::Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override { return "Profile some steps and say what training is bound by"; }
  std::string footnote() const override {
    return R"(Times a number of training steps undisturbed, then the kernels of a few more one by one, and measures what the machine
reaches at best. The verdict is the first of these that holds: data-bound, if a tenth of the step is waiting for its batch;
launch-bound, if a third of the rest passes between kernels or in tiny ones; memory-bound or compute-bound, by what the
kernels spend more time on. With a GPU the host waits around each kernel that it times.

Examples:
  halfstep-bench doctor
  halfstep-bench doctor --batch 1
  halfstep-bench doctor --data mnist_png --prefetch 0 --cache none
)";
  }
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  std::string model_ = "mnist_cnn", data_, precision_ = "f32", device_ = "auto";
  int64_t batch_ = 64, train_ = 20000, steps_ = 100, blocks_ = 2, threads_ = 0;
  cli::LoadingFlags loading_;
  report::Outputs outputs_;
};

void DoctorCommand::declare(cli::Flags& flags) {
  cli::declare_model(flags, model_, blocks_);
  flags.text("--data", data_, "NAME|DIR", "Data set, as for train");
  flags.integer("--train", train_, 1, int64_t{1} << 24, "Training samples, the first N of the set");
  flags.integer("--batch", batch_, 1, 1000000, "Samples per step");
  flags.integer("--steps", steps_, 1, 1000000, "Steps to time");
  flags.choice("--precision", precision_, {"f32", "tf32", "f16", "bf16"}, "Type of matrix products and convolutions");
  loading_.declare(flags);
  flags.integer("--threads", threads_, 0, 1024, "CPU threads, 0: one per core");
  flags.choice("--device", device_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  outputs_.declare(flags);
}

void DoctorCommand::run(const cli::Flags& flags) {
  cli::check_blocks(flags, model_, blocks_);
  LoaderOptions loading = loading_.options();
  if (loading.normalize_on_host) {
    fail(ExitCode::usage, "--preprocess host: doctor profiles steps that read bytes; use --preprocess device");
  }
  outputs_.open();
  const Device device = cli::resolve_device(device_);
  set_threads(static_cast<int>(threads_));
  const cli::TrainingData data = cli::open_training_data(data_, {train_, !flags.given("--train")}, {1, true});
  const SampleInfo& info = data.train->info();
  loading.batch = batch_;
  loading.device = device;
  Loader loader(*data.train, loading);
  measure::OneStep step(model_, blocks_, info, parse_precision(precision_), device);
  const measure::Peaks peaks = measure::measure_peaks(device);
  Batch batch;
  const measure::StepTimes p = measure::measure_step_times(
      [&] {
        cli::check_signals("while profiling; no results were written");
        batch = {};  // its slot is free again before the next one is asked for
        batch = loader.next();
      },
      [&] { step.run({batch}); }, static_cast<int>(steps_), device, peaks);
  const measure::Verdict verdict = measure::diagnose(p, device);

  report::Table table = {{"part of a step", "ms", "share"}, {}};
  Json rows = Json::array();
  const std::pair<const char*, double> parts[] = {{"waiting for the batch", p.wait},
                                                  {"between kernels", p.gaps},
                                                  {"tiny kernels", p.tiny},
                                                  {"kernels that move bytes", p.memory},
                                                  {"kernels that do arithmetic", p.compute}};
  for (const auto& [part, seconds] : parts) {
    table.lines.push_back(
        {part, fmt::format("{:.3f}", seconds * 1e3), fmt::format("{:.1f} %", seconds / p.step * 100)});
    rows.push_back({{"name", part}, {"milliseconds", seconds * 1e3}, {"share", seconds / p.step}});
  }
  Json record = report::new_record(name(), device);
  record["data"] = report::describe_data(data);
  record["config"] = {{"model", model_},
                      {"batch", batch_},
                      {"precision", precision_},
                      {"steps", steps_},
                      {"loading", loading_.config()}};
  record["peaks"] = {{"flops_per_second", peaks.flops}, {"bytes_per_second", peaks.bytes}};
  record["profile"] = {{"step_ms", p.step * 1e3},
                       {"wait_ms", p.wait * 1e3},
                       {"gaps_ms", p.gaps * 1e3},
                       {"tiny_ms", p.tiny * 1e3},
                       {"memory_ms", p.memory * 1e3},
                       {"compute_ms", p.compute * 1e3},
                       {"flops", p.flops},
                       {"bytes", p.bytes}};
  record["rows"] = rows;
  record["verdict"] = {{"name", verdict.name}, {"reason", verdict.reason}, {"advice", verdict.advice}};
  report::present(
      record,
      fmt::format("{} on {}, batch {}, {}, device {}, threads {}: {:.3f} ms a step, of {}", model_, info.name, batch_,
                  precision_, hs::name(device), threads(), p.step * 1e3, steps_),
      {table},
      {fmt::format("{:.1f} GFLOP/s of {:.1f} ({}), {:.1f} GB/s of {:.1f}", p.flops / p.step * 1e-9, peaks.flops * 1e-9,
                   peaks.flops_of, p.bytes / p.step * 1e-9, peaks.bytes * 1e-9),
       fmt::format("verdict: {}: {}", verdict.name, verdict.reason), fmt::format("try next: {}", verdict.advice)});
  outputs_.finish(record);
}

}  // namespace

std::unique_ptr<cli::Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace hs::bench::commands
