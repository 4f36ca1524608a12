// halfstep-bench bench f16: the effect of loss scaling. Trains twice in f16 from the same seed, with dynamic loss
// scaling and with a scale fixed at 1, and reports the scale over the steps and which gradients f16 lost.
//
// Besides "data" and "config" its record has "measured_steps" and
//   rows                       "scaling" and "no scaling": steps, scale {first, changes [{after_step, scale}], last},
//                              skipped_steps, skipped (which), test_accuracy, final_loss, gradients; error if it failed
//   rows[].gradients           in the model's order, activations, then parameters: kind, name, type, values, and the
//                              fractions zero, below_smallest_subnormal, below_smallest_normal, not_finite of these
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "data/io/memory_source.h"
#include "engine/observe.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

// What is counted: zeros, what is below f16's smallest number, and below its smallest normal one, of which each
// includes the one before; and infinities and NaN.
struct Kind {
  const char *member, *head;
};
constexpr Kind kinds[] = {{"zero", "zero"},
                          {"below_smallest_subnormal", "< 2^-24"},
                          {"below_smallest_normal", "< 2^-14"},
                          {"not_finite", "inf/NaN"}};

struct GradientRow {
  std::string name;  // "relu 2": the output of the second relu of the model; or a parameter's name
  DType dtype;
  int64_t values = 0;
  std::array<int64_t, std::size(kinds)> counts = {};

  double share(size_t kind) const { return static_cast<double>(counts[kind]) / static_cast<double>(values); }

  // f16 or f32; waits for the device.
  void add(const Tensor& gradient) {
    constexpr float subnormal = 0x1p-24f, normal = 0x1p-14f, infinity = std::numeric_limits<float>::infinity();
    const Tensor host = gradient.to(Device::cpu);
    if (host.dtype() == DType::f16) {
      count<uint16_t>(host.data<Half>(), host.size(), to_half(subnormal), to_half(normal), to_half(infinity));
    } else {
      count<uint32_t>(host.data<float>(), host.size(), subnormal, normal, infinity);
    }
  }

  // IEEE 754 magnitudes are ordered like their bits read as integers.
  template <class Bits, class T>
  void count(const T* numbers, int64_t size, T subnormal, T normal, T infinity) {
    const Bits below_subnormal = std::bit_cast<Bits>(subnormal), below_normal = std::bit_cast<Bits>(normal);
    const Bits too_large = std::bit_cast<Bits>(infinity);
    for (int64_t i = 0; i < size; ++i) {
      const Bits magnitude = std::bit_cast<Bits>(numbers[i]) & (std::numeric_limits<Bits>::max() >> 1);
      counts[0] += magnitude == 0;
      counts[1] += magnitude < below_subnormal;
      counts[2] += magnitude < below_normal;
      counts[3] += magnitude >= too_large;
    }
    values += size;
  }
};

// The gradients of a training run on this thread, as training stores them, multiplied by the scale, over all steps,
// including skipped ones; and the loss scale.
class GradientWatch : public Observer {
 public:
  int64_t steps = 0;
  double first_scale = 0;
  std::vector<std::pair<int64_t, double>> changes;  // after which step, from 1, and the new scale
  std::vector<int64_t> skipped;                     // the steps
  std::vector<GradientRow> parameters;

  explicit GradientWatch(const ParameterArena& arena)
      : Observer(Event::gradient, Watch::this_thread), arena_(arena), attached_(*this) {
    for (const NamedParameter& parameter : arena.parameters()) {
      if (!parameter.is_statistic) parameters.push_back({parameter.name, DType::f32});
    }
  }

  // Every step runs the same ops in the same order.
  void gradient(const char* op, const Tensor& dy) override {
    if (dy.dtype() != DType::f16) return;
    if (seen_ == activations_.size()) activations_.push_back({op, DType::f16});
    activations_[seen_++].add(dy);
  }

  void on_gradients(const GradScaler& scaler) {
    const size_t statistics = arena_.parameters().size() - parameters.size();  // they come first
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].add(arena_.parameters()[statistics + i].value->grad());
    }
    if (steps == 0) first_scale = scaler.scale();
    note_scale(scaler.scale(), scaler.skipped());
    ++steps;
    seen_ = 0;
  }

  // After `steps` steps.
  void note_scale(double scale, int64_t skipped_steps) {
    if (scale != last_scale()) changes.emplace_back(steps, scale);
    if (skipped_steps != std::ssize(skipped)) skipped.push_back(steps);
  }

  double last_scale() const { return changes.empty() ? first_scale : changes.back().second; }
  void stop() { attached_.reset(); }  // stops watching; keeps the counts

  // In the model's order.
  std::vector<GradientRow> activations() const {
    std::vector<GradientRow> rows(activations_.rbegin(), activations_.rend());
    std::map<std::string, int> numbers;
    for (GradientRow& row : rows) row.name = fmt::format("{} {}", row.name, ++numbers[row.name]);
    return rows;
  }

 private:
  const ParameterArena& arena_;
  std::vector<GradientRow> activations_;  // in the order of backward()
  size_t seen_ = 0;                       // activations of this step so far
  std::optional<Attached> attached_;
};

// One of the two runs.
struct ScalerRun {
  std::string name;
  GradScalerConfig scaler;
  std::unique_ptr<Module> model;
  std::unique_ptr<ParameterArena> arena;
  std::unique_ptr<GradientWatch> watch;
  TrainResult result;
  std::string error;
};

using Runs = std::array<ScalerRun, 2>;

// The gradients of a run; in the table beside those of another run, whose model has the same.
report::Rows gradients_of(const ScalerRun& run, const ScalerRun& other) {
  report::Rows rows{.table = {.title = fmt::format("{}: % of {} steps; no: % of {} steps with {}", run.name,
                                                   run.watch->steps, other.watch->steps, other.name),
                              .left = 2}};
  const auto add = [&](const char* kind, const std::vector<GradientRow>& all, const std::vector<GradientRow>& others) {
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<report::Figure> figures = {{"kind", kind},
                                             {"name", all[i].name, "gradient of"},
                                             {"type", hs::name(all[i].dtype), "type"},
                                             {"values", all[i].values}};
      for (size_t k = 0; k < std::size(kinds); ++k) {
        figures.push_back({kinds[k].member, all[i].share(k), kinds[k].head, "{:.3f}", 100});
      }
      for (size_t k = 0; k < std::size(kinds); ++k) {
        figures.push_back(
            {"", others.at(i).share(k), (k == 0 ? "no: " : "") + std::string(kinds[k].head), "{:.3f}", 100});
      }
      rows.add(figures);
    }
  };
  add("activation", run.watch->activations(), other.watch->activations());
  add("parameter", run.watch->parameters, other.watch->parameters);
  return rows;
}

report::Rows rows_of(const Runs& runs) {
  report::Rows rows;
  for (const ScalerRun& run : runs) {
    const GradientWatch& watch = *run.watch;
    Json changes = Json::array();
    for (const auto& [step, scale] : watch.changes) changes.push_back({{"after_step", step}, {"scale", scale}});
    const bool finished = run.error.empty();
    const EpochResult last = finished ? run.result.epochs.back() : EpochResult{};
    rows.add({{"name", run.name, "run"},
              {"steps", watch.steps, "steps"},
              {"scale", {{"first", watch.first_scale}, {"changes", changes}, {"last", watch.last_scale()}}},
              {"skipped_steps", watch.skipped.size(), "skipped"},
              {"", watch.first_scale, "first scale"},
              {"", watch.last_scale(), "last scale"},
              {"skipped", watch.skipped},
              {"test_accuracy", finished ? Json(last.test.accuracy) : Json(), "accuracy", "{:.2f} %", 100},
              {"final_loss", finished ? Json(last.training_loss) : Json(), "final loss", "{:.4f}"},
              {"gradients", gradients_of(run, run).json},
              {"", finished ? "" : "failed: " + run.error, "remark"}});
    if (!finished) rows.json.back()["error"] = run.error;
  }
  return rows;
}

std::vector<std::string> scale_changes(const Runs& runs) {
  std::vector<std::string> sentences;
  for (const ScalerRun& run : runs) {
    for (const auto& [step, scale] : run.watch->changes) {
      sentences.push_back(fmt::format("{}: after step {} the scale became {}", run.name, step, scale));
    }
    if (run.watch->skipped.empty()) continue;
    sentences.push_back(fmt::format("{}: skipped steps {}", run.name, fmt::join(run.watch->skipped, ", ")));
  }
  return sentences;
}

class ScalerCommand : public RecordingCommand {
  measure::Experiment experiment_;
  std::string device_name_ = "auto";
  cli::DataChoice data_;
  int64_t train_ = 2000, test_ = 500;
  int64_t growth_interval_ = GradScalerConfig().growth_interval;
  double scale_ = GradScalerConfig().initial;
  bool quiet_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"bench f16", "bench f16 --epochs 5 --growth-interval 20 --json scaler.json",
                    "bench f16 --scale 16777216 --batch 16"},
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
    flags.real("--scale", scale_, 1, GradScalerConfig().largest, "Loss scale at the start, a power of two");
    flags.integer("--growth-interval", growth_interval_, 1, 1000000, "Steps without overflow before the scale doubles");
    flags.seed(experiment_.seed);
    flags.record("threads", [] { return threads(); });
    flags.device(device_name_);
    flags.record("precision", [] { return "f16"; });
    flags.quiet(quiet_);
  }

  // Does not use run_experiment: counting would distort the time and memory that it measures.
  void train_one(ScalerRun& run, const SampleSource& train_set, const SampleSource& test_set,
                 cli::ProgressDisplay& display) const {
    run.model = make_model(experiment_.model, experiment_.seed, measure::sizes_for(train_set.info(), 0));
    run.arena = std::make_unique<ParameterArena>(*run.model, experiment_.device);
    Loader training(train_set, {.batch = experiment_.batch, .shuffle = true, .seed = experiment_.seed});
    Loader test(test_set, {.batch = experiment_.batch, .shuffle = false, .seed = experiment_.seed});
    TrainConfig config = experiment_;
    config.scaler = run.scaler;

    run.watch = std::make_unique<GradientWatch>(*run.arena);
    TrainHooks hooks;
    hooks.on_gradients = [&](const GradScaler& scaler) { run.watch->on_gradients(scaler); };
    hooks.on_step = [&](const Progress& progress) {
      display.on_step(progress);
      cli::check_signals(fmt::format("after step {} of epoch {}, {}; no results were written", progress.step,
                                     progress.epoch, run.name));
    };
    hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) { display.on_epoch(epoch, result); };
    try {
      run.result = train(*run.model, *run.arena, training, test, config, hooks);
      run.watch->note_scale(run.result.loss_scale, run.result.skipped_steps);
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

  Runs make_runs() const {
    Runs runs;
    runs[0].name = "scaling", runs[1].name = "no scaling";
    runs[0].scaler.initial = static_cast<float>(scale_);
    runs[0].scaler.growth_interval = static_cast<int32_t>(growth_interval_);
    GradScalerConfig& fixed = runs[1].scaler;
    fixed.initial = fixed.smallest = fixed.largest = 1;
    return runs;
  }

  void run(const cli::Flags& flags) override {
    if (std::exp2(std::round(std::log2(scale_))) != scale_) {
      fail(ExitCode::usage, "--scale {}: expected a power of two, by which a gradient can be divided without rounding",
           scale_);
    }
    experiment_.device = cli::resolve_device(device_name_);
    outputs_.open();
    const cli::TrainingData data = cli::open_training_data(data_, {train_}, {test_});
    const SampleInfo& info = data.train->info();

    Runs runs = make_runs();
    cli::ProgressDisplay display(quiet_, data.synthetic ? info.name : "", static_cast<int64_t>(runs.size()),
                                 experiment_.epochs, info.count, experiment_.batch);
    for (size_t i = 0; i < runs.size(); ++i) {
      display.start_run(static_cast<int64_t>(i) + 1);
      train_one(runs[i], *data.train, *data.test, display);
    }
    Json record = report::new_record(name(), experiment_.device, flags.config(), report::describe_data(data));
    record["measured_steps"] = "all";
    const report::Rows rows = rows_of(runs);
    record["rows"] = rows.json;
    outputs_.finish(record, headline(data),
                    {report::without_empty_columns(rows.table), gradients_of(runs[0], runs[1]).table},
                    scale_changes(runs));
    for (const ScalerRun& run : runs) {
      if (!run.error.empty()) fail(ExitCode::numeric, "{}: {}", run.name, run.error);
    }
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_scaler_command() { return std::make_unique<ScalerCommand>(); }

}  // namespace hs::bench::commands
