// halfstep-bench profile: a short profile of training and one verdict: its bottleneck, and which switch helps.
// Its record has "peaks", "profile" (milliseconds per step), "rows" (the parts of a step: name, milliseconds, share),
// "verdict" and "switches" (the timed ones: flags, ratio of times without and with, its interval, verdict).
#include <fmt/ranges.h>

#include "bench/cli/forced_kernels.h"
#include "bench/commands/commands.h"
#include "bench/measure/doctor.h"
#include "bench/measure/one_step.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/techniques.h"
#include "engine/ranks/transport.h"

namespace hs::bench::commands {
namespace {

// The parts of a step, in the order of the verdicts.
report::Rows parts_of(const measure::StepTimes& p) {
  report::Rows rows;
  for (const auto& [part, seconds] : {std::pair("waiting for the batch", p.wait),
                                      {"between kernels", p.gaps},
                                      {"tiny kernels", p.tiny},
                                      {"kernels that move bytes", p.memory},
                                      {"kernels that do arithmetic", p.compute}}) {
    rows.add({{"name", part, "part of a step"},
              {"milliseconds", seconds * 1e3, "ms", "{:.3f}"},
              {"share", seconds / p.step, "share", "{:.1f} %", 100}});
  }
  return rows;
}

Json to_json(const measure::StepTimes& p) {
  return {{"step_ms", p.step * 1e3},
          {"wait_ms", p.wait * 1e3},
          {"gaps_ms", p.gaps * 1e3},
          {"tiny_ms", p.tiny * 1e3},
          {"memory_ms", p.memory * 1e3},
          {"compute_ms", p.compute * 1e3},
          {"flops", p.flops},
          {"bytes", p.bytes}};
}

Json to_json(const std::vector<measure::Switch>& timed) {
  return mapped(timed, [](const measure::Switch& one) {
    Json made = one.gain.to_json();
    made["flags"] = one.flags;
    made["verdict"] = one.gain.verdict;
    return made;
  });
}

std::vector<std::string> answer_of(const measure::Verdict& verdict, const std::vector<measure::Switch>& timed) {
  std::vector<std::string> helps, others, open;
  for (const measure::Switch& one : timed) {
    const std::string text = fmt::format("{} ({})", one.flags, one.gain.text());
    const bool can_tell = one.gain.verdict == "faster" || one.gain.verdict == "slower";
    one.gain.verdict == "faster" ? helps.push_back(text)
                                 : (can_tell ? others : open).push_back(text + ", " + one.gain.verdict);
  }
  std::vector<std::string> lines = {fmt::format("{}: {}.", verdict.name, verdict.reason)};
  if (!helps.empty()) lines.push_back(fmt::format("Switch on: {}, timed here.", fmt::join(helps, "; ")));
  measure::add_line(lines, "Not decided", open);
  measure::add_line(lines, "Leave as it is", others);
  return lines;
}

class DoctorCommand : public RecordingCommand {
  measure::StepFlags settings_;
  int64_t train_ = 20000, steps_ = 100;
  std::optional<CacheMode> cache_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"profile", "profile --batch 1", "profile --data mnist_png --prefetch 0 --cache none"},
        "`profile kernels` and `profile memory` look closer.\n"
        "Over several processes, `mpirun -n N halfstep-bench train` ends with the verdict on their communication.\n"
        "docs/chapters/15_finding_the_bottleneck.md says how the verdicts come about.");
    settings_.declare(flags);
    flags.train(train_);
    flags.integer("--steps", own(), steps_, 1, 1000000, "Steps to time");
    flags.loading(settings_.experiment.loading, cache_, "loading");
  }

  void run(const cli::Flags& flags) override {
    if (launched_ranks() > 1) {
      fail(ExitCode::usage,
           "profile: looks at one process; start it without mpirun. train under mpirun names what {} ranks wait for",
           launched_ranks());
    }
    LoaderOptions& loading = settings_.experiment.loading;
    if (loading.normalize_on_host) {
      fail(ExitCode::usage, "--preprocess host: profile measures steps that read bytes; use --preprocess device");
    }
    outputs_.open();
    settings_.use();
    const measure::Experiment& experiment = settings_.experiment;
    const Device device = experiment.device;
    const cli::TrainingData data =
        cli::open_training_data(settings_.data, {train_, !flags.given("--train")}, {1, true}, {settings_.context});
    const SampleInfo& info = data.train->info();
    loading.cache = measure::settled_cache(cache_, loading, device, {data.train.get()});
    loading.batch = experiment.batch;
    loading.device = device;
    Loader loader(*data.train, loading);
    const cli::ForcedKernels forced(experiment.kernels);
    measure::OneStep step(experiment, info);
    const measure::Peaks peaks = measure::measure_peaks(device);
    std::vector<Batch> batches;
    const measure::StepTimes p = measure::measure_step_times(
        [&] {
          cli::check_signals("while profiling; no results were written");
          batches.clear();  // frees their slots before the next batch is requested
          batches = measure::next_batches(loader, experiment.accumulate);
        },
        [&] { step.run(batches); }, static_cast<int>(steps_), device, peaks);
    settings_.tuning.check_used();
    const measure::Verdict verdict = measure::diagnose(p, device);
    batches.clear();
    std::vector<measure::Switch> timed = measure::switches_for(verdict.bound, experiment);
    measure::time_switches(timed, experiment, *data.train, p.step);

    Json record = report::new_record(name(), device, flags.config(), report::describe_data(data));
    record["peaks"] = {{"flops_per_second", peaks.flops}, {"bytes_per_second", peaks.bytes}};
    record["profile"] = to_json(p);
    const report::Rows parts = parts_of(p);
    record["rows"] = parts.json;
    record["verdict"] = {{"name", verdict.name}, {"reason", verdict.reason}, {"advice", verdict.advice}};
    record["switches"] = to_json(timed);
    measure::put_answer(record, answer_of(verdict, timed));
    outputs_.finish(record,
                    fmt::format("{} on {}, batch {}, {}, device {}, threads {}: {:.3f} ms a step, of {}",
                                experiment.model, info.name, experiment.batch, hs::name(experiment.precision),
                                hs::name(device), threads(), p.step * 1e3, steps_),
                    {parts.table},
                    {fmt::format("{:.1f} GFLOP/s of {:.1f} ({}), {:.1f} GB/s of {:.1f}", p.flops / p.step * 1e-9,
                                 peaks.flops * 1e-9, peaks.flops_of, p.bytes / p.step * 1e-9, peaks.bytes * 1e-9),
                     fmt::format("further: {}", verdict.advice)});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace hs::bench::commands
