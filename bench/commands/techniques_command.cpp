// halfstep-bench techniques: every technique alone and all of them together against the same baseline, in one process,
// in turns (A B C A B C), so that what disturbs the machine for a while disturbs all of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "bench/cli/clock.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/loading_flags.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/energy.h"
#include "bench/measure/forecast.h"
#include "bench/measure/report.h"
#include "bench/measure/sample_files.h"
#include "bench/measure/statistics.h"
#include "bench/measure/step_profile.h"
#include "bench/measure/target.h"
#include "bench/measure/techniques.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/table.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

struct Size {
  int64_t train, test, epochs, repeat;
};
constexpr Size default_size = {4000, 1000, 2, 3};
constexpr Size quick_size = {640, 256, 1, 3};
constexpr Size full_size = {20000, 5000, 5, 5};  // the article's

// What the rows train on.
struct Sources {
  const SampleSource& train;
  const SampleSource& test;
  bool synthetic;

  const std::string& name() const { return train.info().name; }
};

class TechniquesCommand : public cli::Command {
 public:
  std::string name() const override { return "techniques"; }
  std::string summary() const override { return "Measure every technique alone and together against a baseline"; }
  std::string footnote() const override;
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void take_size(const cli::Flags& flags);
  void print_list() const;
  void print_plan(const measure::Plan& plan, const Sources& data) const;
  void measure(const measure::Plan& plan, const Sources& data, std::vector<measure::Row>& rows,
               std::vector<Json>& kernels);
  Json config() const;
  Json rows_to_json(const measure::Plan& plan, const std::vector<measure::Row>& rows,
                    const std::vector<Json>& kernels) const;
  Json step_of(const measure::Experiment& experiment, const Sources& data) const;
  std::string headline(const Sources& data) const;

  measure::Experiment experiment_;
  std::string data_, device_ = "auto";
  Size size_ = default_size;
  int64_t seed_ = 1, threads_ = 0;
  bool quick_ = false, full_ = false, list_ = false, dry_run_ = false, quiet_ = false;
  measure::Goal goal_;
  report::Outputs outputs_;
};

std::string TechniquesCommand::footnote() const {
  return fmt::format(
      R"(The baseline is f32 with the simple kernels; each batch is read and decoded from files when it is needed (a set that is in
memory is written to a temporary folder first, a file for each image). Each technique is measured alone, the baseline and
it, and in the rows with + together with all before it. All have the same samples in a step, and run r of every row has
the same seed. Before the first pass each row runs two steps that are not timed.

Seconds are those of training, without evaluation: the median of the runs, and the 95 % bootstrap interval of the median.
The speed-up is within noise if the interval of the ratio of medians, over passes, holds 1. Energy is that of training and
evaluation, of everything that the chip did.

The sizes: by default {} digits, {} epochs, {} runs; --quick {}, {} and {}, for a look; --full the article's {}, {} and {}.

Examples:
  halfstep-bench techniques
  halfstep-bench techniques --full --json techniques.json --html techniques.html
  halfstep-bench techniques --target-accuracy 0.95 --price-per-hour 2.10
  halfstep-bench techniques --dry-run
)",
      default_size.train, default_size.epochs, default_size.repeat, quick_size.train, quick_size.epochs,
      quick_size.repeat, full_size.train, full_size.epochs, full_size.repeat);
}

void TechniquesCommand::declare(cli::Flags& flags) {
  flags.choice("--model", experiment_.model, model_names(), "Model");
  flags.text("--data", data_, "NAME", "mnist, fashion_mnist, cifar10, synthetic, or a folder in any format");
  flags.integer("--train", size_.train, 1, int64_t{1} << 24, "Training samples, the first N of the set");
  flags.integer("--test", size_.test, 1, int64_t{1} << 24, "Test samples, the first N of the set");
  flags.integer("--epochs", size_.epochs, 1, 10000, "Passes over the training samples");
  flags.integer("--repeat", size_.repeat, 1, 1000, "Runs of each row, in turns; run r has seed + r, from r = 0");
  flags.integer("--batch", experiment_.batch, 1, 1000000, "Samples per step, in every row");
  flags.real("--lr", experiment_.learning_rate, 1e-12, 1000, "Learning rate of Adam");
  flags.integer("--seed", seed_, 0, (int64_t{1} << 53) - 1000, "Seed of weights, order and dropout");
  flags.integer("--threads", threads_, 0, 1024, "CPU threads, 0: one per core");
  flags.choice("--device", device_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  goal_.declare(flags);
  outputs_.declare(flags);
  flags.on_off("--quick", quick_, "The smallest size that shows anything");
  flags.on_off("--full", full_, "The article's size");
  flags.on_off("--list", list_, "Name the techniques and end");
  flags.on_off("--dry-run", dry_run_, "Time a few steps of each row, print the plan with minutes and memory, and end");
  flags.on_off("--quiet", quiet_, "No progress");
}

void TechniquesCommand::take_size(const cli::Flags& flags) {
  if (quick_ && full_) fail(ExitCode::usage, "--quick and --full: give one of them");
  const Size& wanted = quick_ ? quick_size : full_ ? full_size : default_size;
  if (!flags.given("--train")) size_.train = wanted.train;
  if (!flags.given("--test")) size_.test = wanted.test;
  if (!flags.given("--epochs")) size_.epochs = wanted.epochs;
  if (!flags.given("--repeat")) size_.repeat = wanted.repeat;
  experiment_.epochs = size_.epochs;
}

void TechniquesCommand::print_list() const {
  report::Table table = {.heads = {"technique", "made to save", "what it is"}, .lines = {}, .left = 3};
  for (const measure::Technique& technique : measure::techniques()) {
    table.lines.push_back({technique.name, technique.for_memory ? "memory" : "time", technique.idea});
  }
  cli::write_stdout(to_text(table));
}

void TechniquesCommand::print_plan(const measure::Plan& plan, const Sources& data) const {
  report::Table table = {.heads = {"row", "group", "seconds of a run", "peak MiB"}, .lines = {}, .left = 2};
  double seconds = 0;
  for (const measure::TechniqueRow& row : plan.rows) {
    const measure::Forecast expected =
        measure::forecast(row.experiment, data.train, data.test, static_cast<uint64_t>(seed_));
    seconds += expected.seconds * static_cast<double>(size_.repeat);
    table.lines.push_back(
        {row.name, row.group, fmt::format("{:.1f}", expected.seconds), report::mebibytes(expected.peak_bytes)});
    cli::check_signals("while planning");
  }
  cli::write_stdout(headline(data) + "\n" + report::to_terminal({table}, data.name()) +
                    fmt::format("{}: {} rows, {} runs of each: about {}\n", data.name(), plan.rows.size(), size_.repeat,
                                measure::minutes_text(seconds)));
}

// A diverged run is a result, and its row ends with it; other failures end the program.
void TechniquesCommand::measure(const measure::Plan& plan, const Sources& data, std::vector<measure::Row>& rows,
                                std::vector<Json>& kernels) {
  const std::string label = data.synthetic ? data.name() + "  " : "";
  const auto row_count = static_cast<int64_t>(plan.rows.size());
  cli::ProgressDisplay display(quiet_, data.synthetic ? data.name() : "", row_count * size_.repeat, size_.epochs,
                               data.train.info().count, experiment_.batch);
  TrainHooks hooks;
  hooks.on_step = [&](const Progress& progress) {
    display.on_step(progress);
    cli::check_signals("while measuring; no results were written");
  };
  TrainHooks warming;
  warming.on_step = [](const Progress&) { cli::check_signals("before the first pass; no results were written"); };
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const measure::KernelUse use;
    measure::warm_up(plan.rows[i].experiment, data.train, data.test, warming);
    kernels.emplace_back(use.since());
  }
  measure::EnergyMeter meter(experiment_.device);
  const auto start = Clock::now();
  for (int64_t pass = 1; pass <= size_.repeat; ++pass) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].error.empty()) continue;
      display.start_run((pass - 1) * row_count + static_cast<int64_t>(i) + 1);
      try {
        meter.start();
        measure::RunRecord run = measure::run_experiment(plan.rows[i].experiment, data.train, data.test,
                                                         static_cast<uint64_t>(seed_ + pass - 1), hooks);
        run.joules = meter.joules().value_or(std::nan(""));
        rows[i].runs.push_back(std::move(run));
      } catch (const Error& error) {
        if (error.code() != ExitCode::numeric) throw;
        rows[i].error = error.what();
      }
    }
    const double elapsed = seconds_since(start);
    display.print_line(fmt::format("{}pass {} of {}: {} rows, {:.0f} s, {:.0f} s left\n", label, pass, size_.repeat,
                                   rows.size(), elapsed,
                                   elapsed / static_cast<double>(pass) * static_cast<double>(size_.repeat - pass)));
  }
}

Json TechniquesCommand::config() const {
  Json config = {{"model", experiment_.model},
                 {"epochs", size_.epochs},
                 {"batch", experiment_.batch},
                 {"optimizer", experiment_.optimizer},
                 {"learning_rate", experiment_.learning_rate},
                 {"seed", seed_},
                 {"repeat", size_.repeat},
                 {"threads", threads_},
                 {"device", device_},
                 {"schedule", experiment_.schedule},
                 {"warmup", experiment_.warmup},
                 {"interleaved", true},
                 {"warmed_up", true}};
  goal_.add_to(config);
  return config;
}

Json TechniquesCommand::rows_to_json(const measure::Plan& plan, const std::vector<measure::Row>& rows,
                                     const std::vector<Json>& kernels) const {
  Json all = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const measure::Experiment& experiment = plan.rows[i].experiment;
    Json row = to_json(rows[i]);
    row["group"] = plan.rows[i].group;
    row["for_memory"] = plan.rows[i].for_memory;
    row["experiment"] = {{"precision", hs::name(experiment.precision)}, {"batch", experiment.batch},
                         {"accumulate", experiment.accumulate},         {"graph", experiment.graph},
                         {"prefetch", experiment.loading.prefetch},     {"cache", cli::name(experiment.loading.cache)}};
    row["kernels"] = kernels[i];
    if (i > 0 && rows[i].error.empty() && rows[0].error.empty()) measure::add_comparison(row, all[0]);
    measure::add_goal(row, rows[i].runs, goal_);
    all.push_back(row);
  }
  return all;
}

Json TechniquesCommand::step_of(const measure::Experiment& experiment, const Sources& data) const {
  constexpr int64_t steps = 10;
  TrainHooks hooks;
  hooks.on_step = [](const Progress&) { cli::check_signals("while profiling steps; no results were written"); };
  return measure::typical_step(
      measure::profile_steps(experiment, data.train, data.test, steps, static_cast<uint64_t>(seed_), hooks));
}

std::string TechniquesCommand::headline(const Sources& data) const {
  return fmt::format(
      "{} on {}: {} for training, {} for the test, epochs {}, {} samples a step, {}, device {}, threads {}, runs {}",
      experiment_.model, data.name(), data.train.info().count, data.test.info().count, size_.epochs, experiment_.batch,
      experiment_.optimizer, hs::name(experiment_.device), threads(), size_.repeat);
}

void TechniquesCommand::run(const cli::Flags& flags) {
  if (list_) return print_list();
  take_size(flags);
  outputs_.open();
  experiment_.device = cli::resolve_device(device_);
  set_threads(static_cast<int>(threads_));
  if (threads_ > threads()) cli::notice(fmt::format("--threads {}: this build has no OpenMP and runs on 1", threads_));
  const cli::TrainingData set = cli::open_training_data(data_, {size_.train, false}, {size_.test, false});
  std::optional<measure::SampleFiles> files;
  if (set.train->is_in_memory()) files.emplace(*set.train, *set.test);
  const Sources data = {files ? files->train() : *set.train, files ? files->test() : *set.test, set.synthetic};
  const measure::Plan plan = measure::make_plan(measure::baseline(experiment_));
  if (dry_run_) return print_plan(plan, data);

  Json record = report::new_record(name(), experiment_.device);
  record["data"] = report::describe_data(set);
  record["data"]["as_files"] = files.has_value();
  record["config"] = config();
  std::vector<measure::Row> rows;
  for (const measure::TechniqueRow& row : plan.rows) rows.push_back({row.name, {}, ""});
  std::vector<Json> kernels;
  measure(plan, data, rows, kernels);
  record["energy"] = measure::describe_energy(experiment_.device);
  record["choices"] = noted_choices();
  record["rows"] = rows_to_json(plan, rows, kernels);
  record["absent"] = plan.absent;
  if (outputs_.any()) {
    for (const size_t row : {size_t{0}, rows.size() - 1}) {
      if (rows[row].error.empty()) record["rows"][row]["step"] = step_of(plan.rows[row].experiment, data);
    }
  }
  record["headline"] = headline(data);
  outputs_.finish(record);
  for (const measure::Row& row : rows) {
    if (!row.error.empty()) fail(ExitCode::numeric, "{}: {}", row.name, row.error);
  }
  measure::check_goal(record["rows"], goal_);
}

}  // namespace

std::unique_ptr<cli::Command> make_techniques_command() { return std::make_unique<TechniquesCommand>(); }

}  // namespace hs::bench::commands
