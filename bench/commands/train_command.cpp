// halfstep-bench train: trains one configuration, one or more times, and reports time, accuracy and memory.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/loading_flags.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/energy.h"
#include "bench/measure/forecast.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/report.h"
#include "bench/measure/step_profile.h"
#include "bench/measure/target.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

constexpr int64_t default_trace_steps = 10;

class TrainCommand : public cli::Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override { return "Train a model and report time, accuracy and memory"; }
  std::string footnote() const override;
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  bool resolve_graph(Device device) const;
  void print_ops(const std::vector<measure::KernelRow>& ops) const;
  void measure(const cli::TrainingData& data, measure::Row& row) const;
  Json config() const;
  std::string headline(const cli::TrainingData& data) const;
  measure::StepProfile profile_after_runs(const cli::TrainingData& data) const;
  void print_plan(const cli::TrainingData& data) const;

  measure::Experiment experiment_;
  std::string data_;
  int64_t train_ = 20000, test_ = 5000;
  int64_t seed_ = 1, repeat_ = 1, threads_ = 0;
  std::string device_ = "auto", graph_ = "auto", precision_ = "f32", checkpoint_ = "off";
  cli::LoadingFlags loading_;
  std::vector<std::string> kernels_;
  measure::Goal goal_;
  report::Outputs outputs_;
  std::string trace_;
  int64_t trace_steps_ = default_trace_steps;
  bool dry_run_ = false, quiet_ = false;
};

std::string TrainCommand::footnote() const {
  return R"(The defaults are the headline experiment: the first 20,000 training and the first 5,000 test digits of MNIST.
Without --data, MNIST is looked for in $HALFSTEP_DATA/mnist and ~/.cache/halfstep/mnist; if it is in neither, the
program draws digits itself, says so, and writes "synthetic digits" on every line with a figure.

--data takes a name that `data/get` knows or a folder in any format that `convert` writes; the models fit the images.
Batches are made by --workers threads, --prefetch of them ahead; the order depends on the seed alone. The record's
"parts" say where the time went, and "stall_share" how much of it the steps waited for data.

Time is that of training: loading of batches and steps, without evaluation. Before it come two steps on a throw-away
model, not timed, so that the first epoch does not pay for page faults and the start of threads. The summary is the
median of the repeats' times, the means of their accuracies and losses, and the largest peak of memory.

With --target-accuracy the seconds of training and of evaluation to the first evaluation that reaches it are reported, as
means over the runs that do, with the share of those; if one does not, the exit code is 1.

--trace writes --trace-steps steps that are trained on a throw-away model after the runs, which are not profiled: what each thread of the loader, the training loop and the device's two queues did when, memory by purpose,
and the loss scale of f16. Open it in ui.perfetto.dev or chrome://tracing; nsys shows the same ranges in CUDA builds.

Results go to stdout, progress and messages to stderr. With --json - stdout has the JSON alone and stderr the table, and
likewise with --csv, --md and --html. SIGINT, SIGTERM and SIGHUP stop after the current step, after a second
at the latest, and no file is written.

Examples:
  halfstep-bench train
  halfstep-bench train --repeat 5 --threads 1 --json result.json
  halfstep-bench train --model mlp --optimizer sgd --lr 0.1 --momentum 0.9
  halfstep-bench train --epochs 20 --augment shift=2,rotate=10
  halfstep-bench train --train 2000 --test 500 --kernel conv2d_forward=im2col
  halfstep-bench train --epochs 1 --precision f16 --trace trace.json
  halfstep-bench train --model mnist_cnn_large --dry-run
)";
}

void TrainCommand::declare(cli::Flags& flags) {
  cli::declare_model(flags, experiment_.model, experiment_.blocks);
  flags.text("--data", data_, "NAME", "mnist, fashion_mnist, cifar10, synthetic, or a folder in any format");
  // Limits of data/synthetic.h, and 2^53 because readers of JSON may hold numbers as doubles.
  flags.integer("--train", train_, 1, int64_t{1} << 24, "Training samples, the first N of the set");
  flags.integer("--test", test_, 1, int64_t{1} << 24, "Test samples, the first N of the set");
  loading_.declare(flags);
  flags.integer("--epochs", experiment_.epochs, 1, 10000, "Passes over the training samples");
  flags.integer("--batch", experiment_.batch, 1, 1000000, "Samples per step");
  flags.choice("--optimizer", experiment_.optimizer, {"sgd", "adam", "adamw"}, "Optimizer");
  flags.real("--lr", experiment_.learning_rate, 1e-12, 1000, "Learning rate");
  flags.real("--momentum", experiment_.momentum, 0, 0.9999, "Momentum of sgd");
  flags.real("--weight-decay", experiment_.weight_decay, 0, 1, "Weight decay");
  flags.choice("--schedule", experiment_.schedule, {"constant", "linear", "cosine"}, "Course of the learning rate");
  flags.integer("--warmup", experiment_.warmup, 0, 1000000, "Steps in which the learning rate rises to its full size");
  flags.real("--clip", experiment_.clip, 0, 1e9, "Largest norm of the gradients together, 0: no limit");
  flags.text("--augment", experiment_.augment, "SPEC",
             "Random changes of training images: shift=PIXELS,rotate=DEGREES,cutout=PIXELS,flip, any of them");
  flags.integer("--accumulate", experiment_.accumulate, 1, 1000000, "Batches whose gradients make one step");
  flags.text("--checkpoint", checkpoint_, "WHAT",
             "Activations computed again: off, all, every=N, budget=BYTES (k, M, G), budget=auto");
  flags.choice("--precision", precision_, {"f32", "tf32", "f16", "bf16"}, "Type of matrix products and convolutions");
  flags.integer("--seed", seed_, 0, (int64_t{1} << 53) - 1000, "Seed of weights, order and dropout");
  flags.integer("--repeat", repeat_, 1, 1000, "Runs; run r has seed + r, from r = 0");
  flags.integer("--threads", threads_, 0, 1024, "CPU threads, 0: one per core");
  flags.choice("--device", device_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  flags.choice("--graph", graph_, {"auto", "on", "off"}, "Record a step once and replay it; auto: on with cuda");
  flags.list("--kernel", kernels_, "SLOT=VARIANT", "Use this variant of a kernel; repeatable, `info` lists them");
  goal_.declare(flags);
  outputs_.declare(flags);
  flags.text("--trace", trace_, "FILE", "Write what ran when, for ui.perfetto.dev or chrome://tracing, - for stdout");
  flags.integer("--trace-steps", trace_steps_, 1, 1000, "Steps of the trace");
  flags.on_off("--dry-run", dry_run_, "Time a few steps, print the plan with minutes and memory, and end");
  flags.on_off("--quiet", quiet_, "No progress");
}

bool TrainCommand::resolve_graph(Device device) const {
  if (graph_ == "on" && device != Device::cuda) {
    fail(ExitCode::usage, "--graph on: only cuda captures graphs, and this runs on {}; use --graph off or auto",
         hs::name(device));
  }
  return graph_ == "on" || (graph_ == "auto" && device == Device::cuda);
}

// Which op ran in which type: what "mixed" means, made visible.
void TrainCommand::print_ops(const std::vector<measure::KernelRow>& ops) const {
  if (quiet_) return;
  std::string text = fmt::format("{:<24}{:<32}{:<6}{}\n", "op", "kernel", "type", "variant");
  for (const auto& [call, count] : ops) {
    text += fmt::format("{:<24}{:<32}{:<6}{}\n", call.op, call.slot, hs::name(call.dtype), call.variant);
  }
  cli::write_stderr(text);
  if ((experiment_.precision == Precision::f16 || experiment_.precision == Precision::bf16) &&
      !measure::has_tensor_unit(ops)) {
    cli::notice(fmt::format(
        "--precision {}: no kernel on tensor cores or AMX ran: 16 bits save memory here, not much time", precision_));
  }
}

void TrainCommand::measure(const cli::TrainingData& data, measure::Row& row) const {
  const SampleInfo& info = data.train->info();
  cli::ProgressDisplay display(quiet_, data.synthetic ? info.name : "", repeat_, experiment_.epochs, info.count,
                               experiment_.batch);
  measure::EnergyMeter meter(experiment_.device);
  for (int64_t run = 1; run <= repeat_; ++run) {
    const std::string where = repeat_ == 1 ? "" : fmt::format(" of run {}", run);
    display.start_run(run);
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) {
      display.on_step(progress);
      cli::check_signals(
          fmt::format("after step {} of epoch {}{}; no results were written", progress.step, progress.epoch, where));
    };
    hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) {
      display.on_epoch(epoch, result);
      cli::check_signals(fmt::format("after epoch {}{}; no results were written", epoch, where));
    };
    meter.start();
    row.runs.push_back(
        measure::run_experiment(experiment_, *data.train, *data.test, static_cast<uint64_t>(seed_ + run - 1), hooks));
    row.runs.back().joules = meter.joules().value_or(std::nan(""));
  }
}

measure::StepProfile TrainCommand::profile_after_runs(const cli::TrainingData& data) const {
  TrainHooks hooks;
  hooks.on_step = [](const Progress&) { cli::check_signals("while profiling steps; no results were written"); };
  measure::StepProfile profile =
      measure::profile_steps(experiment_, *data.train, *data.test, trace_steps_, static_cast<uint64_t>(seed_), hooks);
  if (profile.profile.dropped > 0) {
    cli::notice(fmt::format("--trace-steps {}: the trace is full, {} later spans were left out; give it fewer steps",
                            trace_steps_, profile.profile.dropped));
  }
  return profile;
}

Json TrainCommand::config() const {
  Json config = {
      {"model", experiment_.model},
      {"epochs", experiment_.epochs},
      {"batch", experiment_.batch},
      {"optimizer", experiment_.optimizer},
      {"learning_rate", experiment_.learning_rate},
      {"momentum", experiment_.optimizer == "sgd" ? Json(experiment_.momentum) : Json(nullptr)},
      {"weight_decay", experiment_.weight_decay},
      {"seed", seed_},
      {"repeat", repeat_},
      {"threads", threads_},
      {"device", device_},
      {"graph", experiment_.graph},
      {"precision", precision_},
      {"accumulate", experiment_.accumulate},
      {"augment", experiment_.augment},
      {"checkpoint", checkpoint_},
      {"blocks", cli::blocks_or_null(experiment_.model, experiment_.blocks)},
      {"schedule", experiment_.schedule},
      {"warmup", experiment_.warmup},
      {"clip", experiment_.clip},
      {"kernels", kernels_},
      {"warmed_up", true},
  };
  config.update(loading_.config());
  goal_.add_to(config);
  return config;
}

std::string TrainCommand::headline(const cli::TrainingData& data) const {
  const std::string batch = experiment_.accumulate == 1
                                ? fmt::format("{}", experiment_.batch)
                                : fmt::format("{} x {}", experiment_.accumulate, experiment_.batch);
  return fmt::format("{} on {}: {} for training, {} for the test, epochs {}, batch {}, {}, {}, device {}, threads {}",
                     experiment_.model, data.train->info().name, data.train->info().count, data.test->info().count,
                     experiment_.epochs, batch, experiment_.optimizer, precision_, hs::name(experiment_.device),
                     threads());
}

void TrainCommand::print_plan(const cli::TrainingData& data) const {
  const measure::Forecast expected =
      measure::forecast(experiment_, *data.train, *data.test, static_cast<uint64_t>(seed_));
  const std::string& name = data.train->info().name;
  const report::Table table = {
      {"runs", "seconds of a run", "peak MiB"},
      {{std::to_string(repeat_), fmt::format("{:.1f}", expected.seconds), report::mebibytes(expected.peak_bytes)}}};
  cli::write_stdout(fmt::format("{}\n{}{}: {} runs: about {}\n", headline(data), report::to_terminal({table}, name),
                                name, repeat_, measure::minutes_text(expected.seconds * static_cast<double>(repeat_))));
}

void TrainCommand::run(const cli::Flags& flags) {
  if (flags.given("--momentum") && experiment_.optimizer != "sgd") {
    fail(ExitCode::usage, "--momentum {}: {} has none, only --optimizer sgd does", experiment_.momentum,
         experiment_.optimizer);
  }
  OutputFile trace(trace_, "--trace");
  outputs_.open(&trace);
  if (flags.given("--trace-steps") && !trace.is_wanted()) {
    fail(ExitCode::usage, "--trace-steps {}: there is no --trace FILE to write them to", trace_steps_);
  }
  experiment_.precision = parse_precision(precision_);
  parse_augment(experiment_.augment);  // a mistake in it is seen before data are read
  experiment_.loading = loading_.options();
  if (!experiment_.augment.empty() && experiment_.loading.normalize_on_host) {
    fail(ExitCode::usage, "--augment {}: works on bytes, and --preprocess host makes numbers of them; use device",
         experiment_.augment);
  }
  experiment_.checkpoint = parse_checkpoint(checkpoint_);
  cli::check_blocks(flags, experiment_.model, experiment_.blocks);
  set_threads(static_cast<int>(threads_));
  if (threads_ > threads()) cli::notice(fmt::format("--threads {}: this build has no OpenMP and runs on 1", threads_));
  const cli::ForcedKernels forced(kernels_);
  experiment_.device = cli::resolve_device(device_);
  experiment_.graph = resolve_graph(experiment_.device);
  const cli::TrainingData data =
      cli::open_training_data(data_, {train_, !flags.given("--train")}, {test_, !flags.given("--test")});
  const SampleInfo& info = data.train->info();
  if (dry_run_) return print_plan(data);

  Json record = report::new_record(name(), experiment_.device);
  record["data"] = report::describe_data(data);
  record["config"] = config();
  record["headline"] = headline(data);
  record["energy"] = measure::describe_energy(experiment_.device);
  const auto check_early_signals = [] { cli::check_signals("before training; no results were written"); };
  TrainHooks warm_up_hooks;
  warm_up_hooks.on_step = [&](const Progress&) { check_early_signals(); };
  check_early_signals();
  const measure::KernelUse warming;
  std::vector<measure::KernelRow> ops;
  {
    const KernelTrace trace;
    measure::warm_up(experiment_, *data.train, *data.test, warm_up_hooks);
    ops = measure::summarize(trace);
  }
  if (experiment_.precision != Precision::f32) print_ops(ops);
  check_early_signals();
  forced.check_used(warming.since(), fmt::format("training {} with {}", experiment_.model, experiment_.optimizer));

  const measure::KernelUse use;
  measure::Row row{.name = experiment_.model, .runs = {}, .error = ""};
  Json step;
  const auto write_record = [&] {
    record["kernels"] = use.since();
    record["choices"] = noted_choices();
    record["ops"] = Json::array();
    for (const auto& [call, count] : ops) {
      record["ops"].push_back({{"op", call.op},
                               {"kernel", call.slot},
                               {"type", hs::name(call.dtype)},
                               {"variant", call.variant},
                               {"calls_while_warming_up", count}});
    }
    record["rows"] = Json::array({to_json(row)});
    record["rows"][0]["step"] = step;
    measure::add_goal(record["rows"][0], row.runs, goal_);
    outputs_.write(record);
  };
  try {
    measure(data, row);
  } catch (const Error& error) {
    // A diverged run is a result; other failures are not.
    if (error.code() != ExitCode::numeric) throw;
    row.error = error.what();
    write_record();
    throw;
  }
  if (outputs_.any() || trace.is_wanted()) {
    const measure::StepProfile profile = profile_after_runs(data);
    step = measure::typical_step(profile);
    if (trace.is_wanted()) {
      trace.write(measure::trace_file(profile, {{"command", name()},
                                                {"data", record["data"]},
                                                {"config", record["config"]},
                                                {"environment", record["environment"]}}));
      trace.finish();
    }
  }
  write_record();
  trace.keep();
  const std::string report = headline(data) + "\n" + to_table(row, info.name) + measure::plan_table(row, info.name) +
                             measure::goal_line(record["rows"][0], info.name);
  outputs_.use_stdout() || trace.is_stdout() ? cli::write_stderr(report) : cli::write_stdout(report);
  if (!quiet_) outputs_.print_report_path();
  measure::check_goal(record["rows"], goal_);
}

}  // namespace

std::unique_ptr<cli::Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace hs::bench::commands
