// halfstep-bench tune kernels: times every variant of every kernel call of a training step, on the data of that step,
// and writes the fastest ones to a file for --tuning. Its record has "calls", one per slot and tensors: call, count,
// chosen (by rank), fastest, the seconds of both, and taken, which the file has.
#include <map>

#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "bench/commands/commands.h"
#include "bench/measure/kernel_timing.h"
#include "bench/measure/one_step.h"
#include "bench/measure/step_flags.h"

namespace hs::bench::commands {
namespace {

// A faster variant must gain this much, and more than chance explains, so that noise and a busy machine change nothing.
constexpr double least_gain = 1.03;

// The calls of a step with the same slot and tensors.
struct Calls {
  std::string call;  // as a line of the file begins
  std::string chosen;
  std::map<std::string, std::vector<double>> seconds = {};  // of each variant that all support; each round's sum
  int64_t count = 0;
  bool is_one_choice = true;  // the same variant was chosen each time

  void add(const measure::CaseTiming& timing) {
    ++count;
    is_one_choice = is_one_choice && chosen == timing.chosen;
    std::map<std::string, std::vector<double>> sums;
    for (const measure::VariantTiming& one : timing.variants) {
      if (count > 1 && !seconds.contains(one.variant)) continue;
      std::vector<double>& sum = sums[one.variant] = one.warm;
      if (count == 1) continue;
      const std::vector<double>& before = seconds[one.variant];
      sum.resize(std::min(sum.size(), before.size()));
      for (size_t round = 0; round < sum.size(); ++round) sum[round] += before[round];
    }
    seconds = sums;
  }
  bool is_choice() const { return is_one_choice && seconds.size() > 1; }
  const std::string& fastest() const {
    return std::ranges::min_element(seconds, {}, [](const auto& entry) { return median(entry.second); })->first;
  }
  double ratio() const { return median(seconds.at(chosen)) / median(seconds.at(fastest())); }
  const std::string& taken(double max_chance) const {
    const bool is_chance = probability_not_larger(seconds.at(fastest()), seconds.at(chosen)) > max_chance;
    return ratio() > least_gain && !is_chance ? fastest() : chosen;
  }
};

// Runs the step. Throws Error (internal) if a variant is wrong.
std::vector<Calls> tune(measure::OneStep& step, const std::vector<Batch>& batches, const auto& time_call) {
  std::vector<Calls> all;
  const measure::SlotSpy spy([&](const measure::SlotSpy::Seen& seen) {
    cli::check_signals("while tuning; no file was written");
    measure::CaseTiming timing = time_call(seen);
    for (const measure::VariantTiming& one : timing.variants) {
      if (one.wrong.empty()) continue;
      fail(ExitCode::internal, "{}={} ({} {}): is wrong: {}; report this as a bug", timing.slot, one.variant,
           hs::name(timing.type), timing.what, one.wrong);
    }
    // What is ranked below 0 is there to be asked for, however fast.
    std::erase_if(timing.variants, [&](const measure::VariantTiming& one) {
      const VariantBase* v = seen.slot.variants();
      while (v->device != timing.device || v->name != one.variant) v = v->next;
      return v->rank < 0 && one.variant != timing.chosen;
    });
    if (timing.variants.size() < 2) return;  // no choice
    const std::string call = hs::to_text(timing.slot, hs::name(timing.device), signature(seen.tensors));
    auto place = std::ranges::find(all, call, &Calls::call);
    if (place == all.end()) place = all.insert(all.end(), {.call = call, .chosen = timing.chosen});
    place->add(timing);
  });
  step.run(batches);
  std::erase_if(all, [](const Calls& calls) { return !calls.is_choice(); });
  return all;
}

class TuneCommand : public RecordingCommand {
  measure::StepFlags settings_;
  std::string out_;
  int64_t rounds_ = 50;
  double seconds_ = 2;

  void declare(cli::Flags& flags) override {
    flags.examples({"tune kernels --out mnist_cnn.tuning", "train --tuning mnist_cnn.tuning",
                    "tune kernels --model mlp --precision bf16 --threads 1 --out mlp.tuning"},
                   "docs/command_line.md says what is measured and how.");
    settings_.declare(flags, {.tuning = false});
    flags.integer("--rounds", own(), rounds_, 3, 1000, "Turns of each variant");
    flags.real("--seconds", own(), seconds_, 0, 3600, "No new round of a call after this time");
    flags.text("--out", own().writes(), out_, "FILE", "Write the choices, - for stdout");
  }

  void run(const cli::Flags& flags) override {
    if (out_.empty()) fail(ExitCode::usage, "tune kernels: expected --out FILE, to be read by --tuning");
    settings_.use();
    const measure::Experiment& experiment = settings_.experiment;
    const Device device = experiment.device;
    OutputFile out(out_, "--out");
    outputs_.open({&out});
    const cli::TrainingData data = cli::open_training_data(
        settings_.data, {experiment.batch * experiment.accumulate, true}, {1, true}, {settings_.context});
    const SampleInfo& info = data.train->info();
    const cli::ForcedKernels forced(experiment.kernels);
    measure::OneStep step(experiment, info);
    Loader loader(*data.train, {.batch = experiment.batch, .shuffle = true, .device = device});
    const std::vector<Batch> batches = measure::next_batches(loader, experiment.accumulate);
    for (int i = 0; i < 3; ++i) step.run(batches);
    const std::vector<Calls> all = tune(step, batches, [&](const measure::SlotSpy::Seen& seen) {
      return measure::time_call(seen, {rounds_, seconds_, experiment.precision == Precision::tf32});
    });

    const std::string headline =
        fmt::format("{} on {}, batch {}, {}, device {}, threads {}", experiment.model, info.name,
                    batches[0].labels.size(), hs::name(experiment.precision), hs::name(device), threads());
    report::Rows calls{.table = {.left = 2}};
    std::vector<std::pair<std::string, std::string>> choices;
    int64_t changed = 0;
    size_t rivals = 0;  // of the variants chosen by rank: none of them may win by chance
    for (const Calls& one : all) rivals += one.seconds.size() - 1;
    for (const Calls& one : all) {
      const std::string &fastest = one.fastest(), &taken = one.taken(page_error / static_cast<double>(rivals));
      calls.add({{"call", one.call, "call"},
                 {"count", one.count},
                 {"chosen", one.chosen, "by rank"},
                 {"chosen_seconds", median(one.seconds.at(one.chosen)), "us", "{:.1f}", 1e6},
                 {"fastest", fastest, "fastest"},
                 {"fastest_seconds", median(one.seconds.at(fastest)), "us", "{:.1f}", 1e6},
                 {"", one.ratio(), "ratio", "{:.2f}"},
                 {"taken", taken},
                 {"", taken == one.chosen ? "" : taken, "taken"}});
      choices.emplace_back(one.call, taken);
      changed += taken != one.chosen;
    }
    const std::string program = fmt::format("halfstep {} ({})", cli::build_info.version, cli::build_info.commit);
    out.write(tuning_text(measure::tuning_machine(device), program, headline, choices));
    out.keep();
    Json record = report::new_record(name(), device, flags.config(), report::describe_data(data));
    record["calls"] = calls.json;
    outputs_.finish(
        record, headline, {calls.table},
        {fmt::format("{} calls with a choice of variants; {} take another one than the rank's", all.size(), changed)});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_tune_command() { return std::make_unique<TuneCommand>(); }

}  // namespace hs::bench::commands
