// halfstep-bench bench f16: the effect of loss scaling. Trains twice in f16 from the same seed, with dynamic loss
// scaling and with a scale fixed at 1, and reports which gradients f16 lost.
//
// Besides "data" and "config" its record has
//   rows                       "scaling" and "no scaling": steps, skipped_steps, last_scale, test_accuracy, final_loss,
//                              gradients; error if it failed
//   rows[].gradients           of the ops' outputs, in the model's order: name, values, and the fractions zero and
//                              below_smallest_normal of these
#include <array>
#include <bit>
#include <map>

#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/experiment.h"
#include "data/io/memory_source.h"
#include "engine/observe.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

struct GradientRow {
  std::string name;                                 // "relu 2": the output of the second relu of the model
  int64_t values = 0, zeros = 0, below_normal = 0;  // the last includes the zeros

  double share(int64_t count) const { return static_cast<double>(count) / static_cast<double>(values); }

  // f16; waits for the device. IEEE 754 magnitudes are ordered like their bits read as integers.
  void add(const Tensor& gradient) {
    constexpr uint16_t magnitude_bits = 0x7fff, smallest_normal = 0x0400;
    const Tensor host = gradient.to(Device::cpu);
    for (const Half& number : std::span(host.data<Half>(), static_cast<size_t>(host.size()))) {
      const int magnitude = std::bit_cast<uint16_t>(number) & magnitude_bits;
      zeros += magnitude == 0;
      below_normal += magnitude < smallest_normal;
    }
    values += host.size();
  }
};

// The gradients in f16 of a training run on this thread, as training stores them, multiplied by the scale, over all
// steps, including skipped ones.
class GradientWatch : public Observer {
 public:
  int64_t steps = 0;

  GradientWatch() : Observer(Event::gradient, Watch::this_thread), attached_(*this) {}

  // Every step runs the same ops in the same order.
  void gradient(const char* op, const Tensor& dy) override {
    if (dy.dtype() != DType::f16) return;
    if (seen_ == rows_.size()) rows_.push_back({op});
    rows_[seen_++].add(dy);
  }
  void end_step() {
    ++steps;
    seen_ = 0;
  }
  void stop() { attached_.reset(); }  // stops watching; keeps the counts

  // In the model's order.
  std::vector<GradientRow> rows() const {
    std::vector<GradientRow> rows(rows_.rbegin(), rows_.rend());
    std::map<std::string, int> numbers;
    for (GradientRow& row : rows) row.name = fmt::format("{} {}", row.name, ++numbers[row.name]);
    return rows;
  }

 private:
  std::vector<GradientRow> rows_;  // in the order of backward()
  size_t seen_ = 0;                // of this step so far
  std::optional<Attached> attached_;
};

// One of the two runs.
struct ScalerRun {
  std::string name;
  GradScalerConfig scaler = {};
  std::unique_ptr<GradientWatch> watch = {};
  TrainResult result = {};
  std::string error = {};
};

using Runs = std::array<ScalerRun, 2>;

// The gradients of a run; in the table beside those of another run, whose model has the same.
report::Rows gradients_of(const ScalerRun& run, const ScalerRun& other) {
  report::Rows rows{.table = {.title = fmt::format("{}: % of {} steps; no: % of {} steps with {}", run.name,
                                                   run.watch->steps, other.watch->steps, other.name)}};
  const std::vector<GradientRow> all = run.watch->rows(), others = other.watch->rows();
  for (size_t i = 0; i < all.size(); ++i) {
    const GradientRow &one = all[i], &beside = others.at(i);
    rows.add({{"name", one.name, "gradient of"},
              {"values", one.values},
              {"zero", one.share(one.zeros), "zero", "{:.3f}", 100},
              {"below_smallest_normal", one.share(one.below_normal), "< 2^-14", "{:.3f}", 100},
              {"", beside.share(beside.zeros), "no: zero", "{:.3f}", 100},
              {"", beside.share(beside.below_normal), "no: < 2^-14", "{:.3f}", 100}});
  }
  return rows;
}

report::Rows rows_of(const Runs& runs) {
  report::Rows rows;
  for (const ScalerRun& run : runs) {
    const bool finished = run.error.empty();
    const EpochResult last = finished ? run.result.epochs.back() : EpochResult{};
    const auto if_finished = [&](auto value) { return finished ? Json(value) : Json(); };
    rows.add({{"name", run.name, "run"},
              {"steps", run.watch->steps, "steps"},
              {"skipped_steps", if_finished(run.result.skipped_steps), "skipped"},
              {"last_scale", if_finished(run.result.loss_scale), "last scale", "{:.0f}"},
              {"test_accuracy", if_finished(last.test.accuracy), "accuracy", "{:.2f} %", 100},
              {"final_loss", if_finished(last.training_loss), "final loss", "{:.4f}"},
              {"gradients", gradients_of(run, run).json},
              {"", finished ? "" : "failed: " + run.error, "remark"}});
    if (!finished) rows.json.back()["error"] = run.error;
  }
  return rows;
}

class ScalerCommand : public RecordingCommand {
  measure::Experiment experiment_;
  std::string device_name_ = "auto";
  cli::DataChoice data_;
  int64_t train_ = 2000, test_ = 500;
  bool quiet_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"bench f16", "bench f16 --epochs 5 --batch 16 --json scaler.json"},
                   "docs/command_line.md says what the columns mean.");
    experiment_.epochs = 1;
    experiment_.precision = Precision::f16;
    experiment_.fuse = false;  // so that each op has its own gradients to show
    flags.model(experiment_.model);
    flags.data(data_);
    flags.train(train_);
    flags.test(test_);
    flags.epochs(experiment_.epochs);
    flags.batch(experiment_.batch);
    flags.record("optimizer", [] { return "adam"; });
    flags.learning_rate(experiment_.optimizer.learning_rate);
    flags.seed(experiment_.seed);
    flags.record("threads", [] { return threads(); });
    flags.device(device_name_);
    flags.record("precision", [] { return "f16"; });
    flags.quiet(quiet_);
  }

  // Does not use run_experiment: counting would distort the time and memory that it measures.
  void train_one(ScalerRun& run, const SampleSource& train_set, const SampleSource& test_set,
                 cli::ProgressDisplay& display) const {
    const auto model = make_model(experiment_.model, experiment_.seed, measure::sizes_for(train_set.info(), 0));
    ParameterArena arena(*model, experiment_.device);
    Loader training(train_set, {.batch = experiment_.batch, .shuffle = true, .seed = experiment_.seed});
    Loader test(test_set, {.batch = experiment_.batch, .shuffle = false, .seed = experiment_.seed});
    TrainConfig config = experiment_;
    config.scaler = run.scaler;

    run.watch = std::make_unique<GradientWatch>();
    TrainHooks hooks;
    hooks.on_gradients = [&](const GradScaler&) { run.watch->end_step(); };
    hooks.on_step = [&](const Progress& progress) {
      display.on_step(progress);
      cli::check_signals(fmt::format("after step {} of epoch {}, {}; no results were written", progress.step,
                                     progress.epoch, run.name));
    };
    hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) { display.on_epoch(epoch, result); };
    try {
      run.result = train(*model, arena, training, test, config, hooks);
    } catch (const Error& error) {
      if (error.code() != ExitCode::numeric) throw;
      run.error = error.what();  // a run that diverged is a result
    }
    run.watch->stop();
  }

  std::string headline(const cli::TrainingData& data) const {
    const SampleInfo& info = data.train->info();
    return fmt::format(
        "{} on {}: {} for training, {} for the test, epochs {}, batch {}, adam, f16, device {}, threads {}",
        experiment_.model, info.name, info.count, data.test->info().count, experiment_.epochs, experiment_.batch,
        hs::name(experiment_.device), threads());
  }

  void run(const cli::Flags& flags) override {
    experiment_.device = cli::resolve_device(device_name_);
    outputs_.open();
    const cli::TrainingData data = cli::open_training_data(data_, {train_}, {test_});
    const SampleInfo& info = data.train->info();

    Runs runs = {ScalerRun{.name = "scaling"},
                 ScalerRun{.name = "no scaling", .scaler = {.initial = 1, .smallest = 1, .largest = 1}}};
    cli::ProgressDisplay display(quiet_, data.synthetic ? info.name : "", static_cast<int64_t>(runs.size()),
                                 experiment_.epochs, info.count, experiment_.batch);
    for (size_t i = 0; i < runs.size(); ++i) {
      display.start_run(static_cast<int64_t>(i) + 1);
      train_one(runs[i], *data.train, *data.test, display);
    }
    Json record = report::new_record(name(), experiment_.device, flags.config(), report::describe_data(data));
    const report::Rows rows = rows_of(runs);
    record["rows"] = rows.json;
    outputs_.finish(record, headline(data),
                    {report::without_empty_columns(rows.table), gradients_of(runs[0], runs[1]).table});
    for (const ScalerRun& run : runs) {
      if (!run.error.empty()) fail(ExitCode::numeric, "{}: {}", run.name, run.error);
    }
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_scaler_command() { return std::make_unique<ScalerCommand>(); }

}  // namespace hs::bench::commands
