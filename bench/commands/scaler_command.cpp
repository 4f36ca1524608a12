// halfstep-bench scaler: the effect of loss scaling. Trains twice in f16 from the same seed, with dynamic loss scaling
// and with a scale fixed at 1, and reports the scale over the steps and which gradients f16 lost.
//
// Besides "data" and "config" its record has "measured_steps" and
//   rows                       "scaling" and "no scaling": steps, scale {first, changes [{after_step, scale}], last},
//                              skipped_steps, skipped (which), test_accuracy, final_loss, gradients; error if it failed
//   rows[].gradients           in the model's order, activations, then parameters: kind, name, type, values, and the
//                              fractions zero, below_smallest_subnormal, below_smallest_normal, not_finite of these
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <memory>

#include "bench/cli/clock.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/gradient_watch.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "data/loader/loader.h"
#include "data/memory_source.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

// One of the two runs.
struct ScalerRun {
  std::string name;
  GradScalerConfig scaler;
  std::unique_ptr<Module> model;
  std::unique_ptr<ParameterArena> arena;
  std::unique_ptr<measure::GradientWatch> watch;
  TrainResult result;
  std::string error;
};

using Runs = std::array<ScalerRun, 2>;

class ScalerCommand : public cli::Command {
 public:
  std::string name() const override { return "scaler"; }
  std::string summary() const override { return "Train in f16 with and without loss scaling and report the gradients"; }
  std::string footnote() const override;
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  Runs make_runs() const;
  void train_one(ScalerRun& run, const SampleSource& train_set, const SampleSource& test_set,
                 cli::ProgressDisplay& display) const;
  void print_plan() const;
  std::string headline(const cli::TrainingData& data) const;

  std::string model_ = "mnist_cnn", device_name_ = "auto";
  cli::DataChoice data_;
  int64_t train_ = 2000, test_ = 500, epochs_ = 1, batch_ = 64, seed_ = 1;
  int64_t growth_interval_ = GradScalerConfig().growth_interval;
  float learning_rate_ = 1e-3f;
  double scale_ = GradScalerConfig().initial;
  bool dry_run_ = false, quiet_ = false;
  Device device_ = Device::cpu;
  report::Outputs outputs_;
};

std::string ScalerCommand::footnote() const {
  return R"(Examples:
  halfstep-bench scaler
  halfstep-bench scaler --epochs 5 --growth-interval 20 --json scaler.json
  halfstep-bench scaler --scale 16777216 --batch 16

docs/command_line.md says what the columns mean.
)";
}

void ScalerCommand::declare(cli::Flags& flags) {
  flags.model(model_).record();
  flags.data(data_);
  flags.train(train_);
  flags.test(test_);
  flags.epochs(epochs_).record();
  flags.batch(batch_).record();
  flags.record("optimizer", [] { return "adam"; });
  flags.learning_rate(learning_rate_).record();
  flags.real("--scale", scale_, 1, GradScalerConfig().largest, "Loss scale at the start, a power of two").record();
  flags.integer("--growth-interval", growth_interval_, 1, 1000000, "Steps without overflow before the scale doubles")
      .record();
  flags.seed(seed_).record();
  flags.record("threads", [] { return threads(); });
  flags.device(device_name_).record();
  flags.record("precision", [] { return "f16"; });
  outputs_.declare(flags);
  flags.dry_run(dry_run_);
  flags.quiet(quiet_);
}

// Does not use run_experiment: counting would distort the time and memory that it measures.
void ScalerCommand::train_one(ScalerRun& run, const SampleSource& train_set, const SampleSource& test_set,
                              cli::ProgressDisplay& display) const {
  const auto seed = static_cast<uint64_t>(seed_);
  run.model = make_model(model_, seed, measure::sizes_for(train_set.info(), 0));
  run.arena = std::make_unique<ParameterArena>(*run.model, device_);
  Loader training(train_set, {.batch = batch_, .shuffle = true, .seed = seed});
  Loader test(test_set, {.batch = batch_, .shuffle = false, .seed = seed});
  TrainConfig config;
  config.epochs = epochs_;
  config.optimizer.learning_rate = static_cast<float>(learning_rate_);
  config.seed = seed;
  config.device = device_;
  config.precision = Precision::f16;
  config.fuse = false;  // so that each op has its own gradients to show
  config.scaler = run.scaler;

  run.watch = std::make_unique<measure::GradientWatch>(*run.arena);
  TrainHooks hooks;
  hooks.on_gradients = [&](const GradScaler& scaler) { run.watch->on_gradients(scaler); };
  hooks.on_step = [&](const Progress& progress) {
    display.on_step(progress);
    cli::check_signals(
        fmt::format("after step {} of epoch {}, {}; no results were written", progress.step, progress.epoch, run.name));
  };
  hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) { display.on_epoch(epoch, result); };
  try {
    run.result = train(*run.model, *run.arena, training, test, config, hooks);
    run.watch->finish(run.result);
  } catch (const Error& error) {
    if (error.code() != ExitCode::numeric) throw;
    run.error = error.what();  // a run that diverged is a result
  }
  run.watch->stop();
}

Json gradients_to_json(const measure::GradientWatch& watch) {
  Json rows = Json::array();
  const auto add = [&](const char* kind, const measure::GradientRow& row) {
    const measure::GradientCounts& counts = row.counts;
    rows.push_back({{"kind", kind},
                    {"name", row.name},
                    {"type", hs::name(row.dtype)},
                    {"values", counts.values},
                    {"zero", counts.share(counts.zero)},
                    {"below_smallest_subnormal", counts.share(counts.below_subnormal)},
                    {"below_smallest_normal", counts.share(counts.below_normal)},
                    {"not_finite", counts.share(counts.not_finite)}});
  };
  for (const measure::GradientRow& row : watch.activations()) add("activation", row);
  for (const measure::GradientRow& row : watch.parameters()) add("parameter", row);
  return rows;
}

Json to_json(const ScalerRun& run) {
  const measure::GradientWatch& watch = *run.watch;
  Json changes = Json::array();
  for (const measure::ScaleChange& change : watch.changes()) {
    changes.push_back({{"after_step", change.after_step}, {"scale", change.scale}});
  }
  const bool finished = run.error.empty();
  Json json = {
      {"name", run.name},
      {"steps", watch.steps()},
      {"scale", {{"first", watch.first_scale()}, {"changes", changes}, {"last", watch.last_scale()}}},
      {"skipped_steps", watch.skipped().size()},
      {"skipped", watch.skipped()},
      {"test_accuracy", finished ? finite_or_null(run.result.epochs.back().test.accuracy) : Json(nullptr)},
      {"final_loss", finished ? finite_or_null(run.result.epochs.back().training_loss) : Json(nullptr)},
      {"gradients", gradients_to_json(watch)},
  };
  if (!finished) json["error"] = run.error;
  return json;
}

// Compares two runs whose models have the same gradients.
report::Table gradient_table(const Runs& runs) {
  report::Table table = {.heads = {"gradient of", "type", "zero", "< 2^-24", "< 2^-14", "inf/NaN", "no: zero",
                                   "< 2^-24", "< 2^-14", "inf/NaN"},
                         .lines = {},
                         .title = fmt::format("{}: % of {} steps; no: % of {} steps with {}", runs[0].name,
                                              runs[0].watch->steps(), runs[1].watch->steps(), runs[1].name),
                         .left = 2};
  const auto add = [&](const std::vector<measure::GradientRow>& scaled,
                       const std::vector<measure::GradientRow>& unscaled) {
    for (size_t i = 0; i < scaled.size(); ++i) {
      auto& line = table.lines.emplace_back(std::vector<std::string>{scaled[i].name, hs::name(scaled[i].dtype)});
      for (const measure::GradientCounts* counts : {&scaled[i].counts, &unscaled.at(i).counts}) {
        for (const int64_t count : {counts->zero, counts->below_subnormal, counts->below_normal, counts->not_finite}) {
          line.push_back(fmt::format("{:.3f}", counts->share(count) * 100));
        }
      }
    }
  };
  add(runs[0].watch->activations(), runs[1].watch->activations());
  add(runs[0].watch->parameters(), runs[1].watch->parameters());
  return table;
}

report::Table run_table(const Runs& runs) {
  report::Table table = {{"run", "steps", "skipped", "first scale", "last scale", "accuracy", "final loss", "remark"},
                         {}};
  for (const ScalerRun& run : runs) {
    const measure::GradientWatch& watch = *run.watch;
    const bool finished = run.error.empty();
    table.lines.push_back({run.name, std::to_string(watch.steps()), std::to_string(watch.skipped().size()),
                           fmt::format("{}", watch.first_scale()), fmt::format("{}", watch.last_scale()),
                           finished ? fmt::format("{:.2f} %", run.result.epochs.back().test.accuracy * 100) : "",
                           finished ? fmt::format("{:.4f}", run.result.epochs.back().training_loss) : "",
                           finished ? "" : "failed: " + run.error});
  }
  return report::without_empty_columns(table);
}

std::vector<std::string> scale_changes(const Runs& runs) {
  std::vector<std::string> sentences;
  for (const ScalerRun& run : runs) {
    for (const measure::ScaleChange& change : run.watch->changes()) {
      sentences.push_back(
          fmt::format("{}: after step {} the scale became {}", run.name, change.after_step, change.scale));
    }
    if (run.watch->skipped().empty()) continue;
    sentences.push_back(fmt::format("{}: skipped steps {}", run.name, fmt::join(run.watch->skipped(), ", ")));
  }
  return sentences;
}

std::string ScalerCommand::headline(const cli::TrainingData& data) const {
  const SampleInfo& info = data.train->info();
  return fmt::format(
      "{} on {}: {} for training, {} for the test, epochs {}, batch {}, adam, f16, device {}, threads {}", model_,
      info.name, info.count, data.test->info().count, epochs_, batch_, hs::name(device_), threads());
}

Runs ScalerCommand::make_runs() const {
  Runs runs;
  runs[0].name = "scaling", runs[1].name = "no scaling";
  runs[0].scaler.initial = static_cast<float>(scale_);
  runs[0].scaler.growth_interval = static_cast<int32_t>(growth_interval_);
  GradScalerConfig& fixed = runs[1].scaler;
  fixed.initial = fixed.smallest = fixed.largest = 1;
  return runs;
}

// The scaled run over a few batches, after an equal warm-up.
void ScalerCommand::print_plan() const {
  const cli::TrainingData data = cli::open_training_data(data_, {train_}, {test_});
  const SampleInfo& info = data.train->info();
  constexpr SampleOrder order = SampleOrder::as_it_is;
  const PartOfSamples some(*data.train, 0, 4 * batch_, order), few(*data.test, 0, batch_, order);
  cli::ProgressDisplay display(true, "", 2, epochs_, some.info().count, batch_);
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    Runs runs = make_runs();
    reset_peak(device_);
    const Clock::time_point start = Clock::now();
    train_one(runs[0], some, few, display);
    seconds = seconds_since(start);
  }
  seconds *= static_cast<double>(info.count) / static_cast<double>(some.info().count);
  measure::DryRun plan({"run", "seconds of a run", "peak MiB"});
  plan.add({"each of two"}, {seconds, memory_stats(device_).peak}, 2);
  plan.print(headline(data), info.name, "");
}

void ScalerCommand::run(const cli::Flags& flags) {
  if (std::exp2(std::round(std::log2(scale_))) != scale_) {
    fail(ExitCode::usage, "--scale {}: expected a power of two, by which a gradient can be divided without rounding",
         scale_);
  }
  device_ = cli::resolve_device(device_name_);
  outputs_.open();
  if (dry_run_) return print_plan();
  const cli::TrainingData data = cli::open_training_data(data_, {train_}, {test_});
  const SampleInfo& info = data.train->info();

  Runs runs = make_runs();
  cli::ProgressDisplay display(quiet_, data.synthetic ? info.name : "", static_cast<int64_t>(runs.size()), epochs_,
                               info.count, batch_);
  Json rows = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    display.start_run(static_cast<int64_t>(i) + 1);
    train_one(runs[i], *data.train, *data.test, display);
    rows.push_back(to_json(runs[i]));
  }
  Json record = report::new_record(name(), device_);
  record["data"] = report::describe_data(data);
  record["config"] = flags.config();
  record["measured_steps"] = "all";
  record["rows"] = rows;
  report::present(record, headline(data), {run_table(runs), gradient_table(runs)}, scale_changes(runs));
  outputs_.finish(record);
  for (const ScalerRun& run : runs) {
    if (!run.error.empty()) fail(ExitCode::numeric, "{}: {}", run.name, run.error);
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_scaler_command() { return std::make_unique<ScalerCommand>(); }

}  // namespace hs::bench::commands
