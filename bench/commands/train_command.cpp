// halfstep-bench train: trains one configuration, one or more times, and reports time, accuracy and memory.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <string_view>

#include "bench/cli/forced_kernels.h"
#include "bench/cli/plugins.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/event_file.h"
#include "bench/measure/fine_tuning.h"
#include "bench/measure/forecast.h"
#include "bench/measure/memory_budget.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/ranks.h"
#include "bench/measure/row.h"
#include "bench/measure/saving.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/step_profile.h"
#include "bench/measure/target.h"
#include "engine/storage.h"
#include "models/files/model_file.h"
#include "models/generate.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

constexpr int64_t default_trace_steps = 10;
constexpr double seconds_between_points = 1;  // of a curve within an epoch

class TrainCommand : public RecordingCommand {
  measure::StepFlags settings_;
  measure::Experiment& experiment_ = settings_.experiment;
  measure::Residency residency_;
  int64_t train_ = cli::automatic_samples, test_ = cli::automatic_samples;
  int64_t repeat_ = 1, scale_lr_ = 0;
  std::string graph_ = "auto";
  measure::Goal goal_;
  Cadence test_every_ = {.epochs = 1};
  measure::FineTuning fine_tuning_;
  measure::Saving saving_;
  measure::MemoryBudget memory_;
  measure::Ranks ranks_;
  std::string save_model_, tensorboard_, trace_;
  int64_t trace_steps_ = default_trace_steps;
  Json written_;  // by the last run's model of a text
  bool dry_run_ = false, quiet_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"train --repeat 5 --threads 1 --json result.json",
         "train --model mlp --optimizer sgd --lr 0.1 --momentum 0.9 --augment shift=2,rotate=10",
         "train --epochs 1 --precision f16 --trace trace.json",
         "train --save-model digits.safetensors   # then: halfstep-bench predict --model digits.safetensors"},
        R"(Over several processes, by MPI: rank 0 writes everything; the weights are those of one with --reduce tree.
  mpirun -n 4 --bind-to none halfstep-bench train --batch 16 --accumulate 4
  mpirun --host a:1,b:1 halfstep-bench train ...      # other machines; inside sbatch or salloc without --host
If a rank hangs, one that waits for it ends with code 9 and names it. mpirun then stops all ranks, and returns the code
of the one that ended first, or 137 if it was killed.

docs/chapters/12_benchmarks.md says what is measured and how.)");
    settings_.declare(flags);
    flags.train(train_);
    flags.test(test_);
    flags.epochs(experiment_.epochs);
    flags.integer("--scale-lr", rare(Group::training).not_from_record(), scale_lr_, 0, 1 << 30,
                  "The batch for which --lr is right: scales it to the one in use, and warms up; 0: as it is");
    flags.repeat(repeat_);
    declare_graph(flags);
    ranks_.declare(flags);
    declare_schedule(flags);
    flags.record("warmed_up", [] { return true; });
    flags.loading(experiment_.loading, residency_.cache);
    flags.named_choice("--loader", rare(Group::data).keeps_bits(), experiment_.searches_loading,
                       {{"given", false}, {"auto", true}},
                       "auto: finds --workers and --prefetch while the first steps run; the weights are the same");
    goal_.declare(flags, "End when the validation, or without one the test, reaches this");
    declare_early_end(flags);
    memory_.declare(flags);
    saving_.declare(flags);
    fine_tuning_.declare(flags, experiment_);
    flags.text(
        "--save-model", common(Group::output).known_as({"output"}).writes(), save_model_, "FILE",
        "Write the trained weights as safetensors, for predict, evaluate and export (of several runs, the last)");
    flags.text("--tensorboard", rare(Group::output).known_as({"logdir"}).writes(), tensorboard_, "DIR",
               "Write the curves of the training for TensorBoard, of several runs each into a folder of its own");
    flags.text("--trace", rare(Group::output).writes(), trace_, "FILE",
               "Write what ran when, for ui.perfetto.dev or chrome://tracing, - for stdout");
    flags.integer("--trace-steps",
                  rare(Group::output)
                      .writes()
                      .needs([this] { return !trace_.empty(); }, "there is no --trace FILE to write them to"),
                  trace_steps_, 1, 1000, "Steps of the trace");
    flags.dry_run(dry_run_);
    flags.quiet(quiet_);
  }

  void declare_graph(cli::Flags& flags) {
    flags
        .choice("--graph", rare(Group::speed).moves({"step"}).compared(), graph_, {"auto", "on", "off"},
                "Record a step once and replay it; auto: on with cuda")
        .record("graph", [this] { return experiment_.graph; });
    flags
        .integer_or_auto(
            "--graph-steps", rare(Group::speed).keeps_bits().moves({"step"}), residency_.graph_steps,
            measure::automatic_graph_steps, 1, 1024,
            "Steps that a graph holds; 2 or more with cache device; auto: 16 where nothing is between them")
        .record("graph_steps", [this] { return experiment_.graph_steps; });
  }

  void declare_schedule(cli::Flags& flags) {
    flags.named_choice("--schedule", common(Group::training).known_as({"scheduler"}),
                       experiment_.optimizer.schedule.kind,
                       {{"constant", ScheduleKind::constant},
                        {"linear", ScheduleKind::linear},
                        {"cosine", ScheduleKind::cosine},
                        {"step", ScheduleKind::step},
                        {"one-cycle", ScheduleKind::one_cycle}},
                       "Course of the learning rate");
    const cli::Facts of_steps = rare(Group::training)
                                    .needs([this] { return experiment_.optimizer.schedule.kind == ScheduleKind::step; },
                                           "belongs to --schedule step; give that as well");
    flags.integer("--step-every", of_steps, experiment_.optimizer.schedule.every, 1, 1 << 30,
                  "With --schedule step: steps of one rate");
    flags.real("--step-factor", of_steps, experiment_.optimizer.schedule.factor, 1e-6, 1,
               "With --schedule step: the factor after each of them");
    flags.integer("--warmup", rare(Group::training), experiment_.optimizer.schedule.warmup_steps, 0, 1000000,
                  "Steps in which the learning rate rises to its full size");
  }

  void declare_early_end(cli::Flags& flags) {
    const auto validates = [this] { return experiment_.held_out > 0; };
    constexpr const char* otherwise = "there is nothing to validate on; give --validation 0.1 as well";
    flags
        .on_off("--noise-scale", rare(Group::training).keeps_bits(), experiment_.noise_scale,
                "Measure how many samples a step could average; needs --accumulate 2 or more, and takes time")
        .record("noise_scale", [this] { return experiment_.noise_scale; });
    flags.real("--validation", rare(Group::data).moves({"amount", "evaluation"}), experiment_.held_out, 0, 0.9,
               "Fraction of the training samples held out to validate on");
    flags.text(
        "--validate-every", rare(Group::data).moves({"evaluation"}).needs(validates, otherwise),
        [this](const std::string& text) { experiment_.validate_every = parse_cadence(text); }, "1ep", "HOW",
        "When to validate: 1ep (epochs) or 500st (steps)");
    flags.text(
        "--test-every", rare(Group::data).keeps_bits().moves({"evaluation"}),
        [this](const std::string& text) { test_every_ = parse_cadence(text); }, "1ep", "HOW",
        "When to test: 1ep (epochs) or 500st (steps); the end always");
    flags.integer("--patience", rare(Group::training).keeps_bits().moves({"amount"}).needs(validates, otherwise),
                  experiment_.patience, 0, 1000000,
                  "End after so many validations without a better accuracy, 0: never");
    flags.real("--max-minutes", rare(Group::training).keeps_bits().moves({"amount"}), experiment_.max_minutes, 0, 1e6,
               "End after so many minutes of training, 0: never");
  }

  void check_combinations(const cli::Flags& flags) {
    if (flags.given("--warmup") && experiment_.optimizer.schedule.kind == ScheduleKind::one_cycle) {
      fail(ExitCode::usage, "--warmup {}: --schedule one-cycle has its own; leave one out",
           experiment_.optimizer.schedule.warmup_steps);
    }
    for (const auto& [flag, cadence] :
         {std::pair("--validate-every", experiment_.validate_every), {"--test-every", test_every_}}) {
      if (cadence.seconds == 0) continue;
      fail(ExitCode::usage, "{}: expected steps or epochs, as in 500st or 1ep, so that runs can be repeated", flag);
    }
    if (test_every_.steps > 0 && experiment_.held_out > 0) {
      fail(ExitCode::usage, "--test-every {}st: with --validation, steps are for --validate-every; give it epochs",
           test_every_.steps);
    }
    saving_.check(flags, repeat_);
    for (const char* flag : {"--workers", "--prefetch"}) {
      if (experiment_.searches_loading && flags.given(flag)) {
        fail(ExitCode::usage, "--loader auto: finds {} itself; leave that out", flag);
      }
    }
    if (experiment_.noise_scale && experiment_.accumulate < 2) {
      fail(ExitCode::usage, "--noise-scale: compares a micro-batch with its step; give --accumulate 2 or more");
    }
    if (experiment_.augment.any() && experiment_.loading.normalize_on_host) {
      fail(ExitCode::usage, "--augment: works on bytes, and --preprocess host makes numbers of them; use device");
    }
  }

  // When training is judged, and by what it ends.
  void settle_judging(const cli::Flags& flags) {
    experiment_.target = goal_.target;
    experiment_.test_every_steps = test_every_.steps;
    experiment_.test_every = test_every_.steps > 0 ? experiment_.epochs : test_every_.epochs;
    if (goal_.target && experiment_.held_out <= 0 && !quiet_) {
      cli::notice(fmt::format("--target {}: judged on the test set; --validation 0.1 holds out samples to judge by",
                              flags.config()["target"].get<std::string>()));
    }
  }

  // The linear rule with warm-up (Goyal et al., "Accurate, large minibatch SGD", 2017): the paper warms up for 5 of 90
  // epochs, this for the same share of the steps.
  void scale_learning_rate(const cli::Flags& flags, int64_t samples) {
    const int64_t batch = experiment_.batch * experiment_.accumulate;
    if (scale_lr_ == 0 || scale_lr_ == batch) return;
    float& rate = experiment_.optimizer.learning_rate;
    const double before = cli::as_written(rate);
    rate = static_cast<float>(before * static_cast<double>(batch) / static_cast<double>(scale_lr_));
    std::string text = fmt::format("--scale-lr {}: batch {} x {}, so the learning rate is {:g} instead of {:g}",
                                   scale_lr_, experiment_.accumulate, experiment_.batch, rate, before);
    if (batch > scale_lr_ && !flags.given("--warmup") &&
        experiment_.optimizer.schedule.kind != ScheduleKind::one_cycle) {
      experiment_.optimizer.schedule.warmup_steps =
          static_cast<int32_t>((samples + batch - 1) / batch * experiment_.epochs * 5 / 90);
      text += fmt::format(", reached after {} steps", experiment_.optimizer.schedule.warmup_steps);
    }
    if (!quiet_) cli::notice(text);
  }

  // How much of a step "mixed" means, and whether this machine gains by it.
  void print_precision(const measure::KernelTrace& trace) const {
    if (quiet_) return;
    // Tensor cores, AMX, dot products of bf16 pairs.
    const std::set<std::string_view> units_for_16_bits = {"cublaslt", "mma", "wmma", "amx", "avx512_bf16"};
    std::set<std::string> kernels, narrow, units;
    for (const measure::KernelCall& call : trace.calls()) {
      kernels.insert(call.slot);
      if (call.dtype == DType::f32) continue;
      narrow.insert(call.slot);
      if (units_for_16_bits.contains(call.variant)) units.insert(call.variant);
    }
    cli::notice(fmt::format("--precision {}: {} of {} kernels of a step take 16 bits, {}; profile kernels lists them",
                            hs::name(experiment_.precision), narrow.size(), kernels.size(),
                            units.empty() ? "none by a unit that multiplies them: they save memory here, not much time"
                                          : fmt::format("the products by {}", fmt::join(units, ", "))));
  }

  // One for each run, so that a folder that cannot be written fails before training.
  std::deque<measure::EventFile> open_event_files(bool continues) const {
    std::deque<measure::EventFile> files;
    for (int64_t run = 1; run <= repeat_ && !tensorboard_.empty(); ++run) {
      const std::filesystem::path folder = tensorboard_;
      files.emplace_back(repeat_ == 1 ? folder : folder / fmt::format("run-{}", run), continues);
    }
    return files;
  }

  // What is known of all runs so far, this one included.
  void show_so_far(Json record, measure::Row row, measure::RunRecord run, int64_t epoch) {
    if (!outputs_.page_is_due()) return;
    run.peak_bytes = memory_stats(experiment_.device).peak;
    row.runs.push_back(std::move(run));
    record["rows"] = Json::array({to_json(row)});
    record["headline"] = fmt::format("Run {} of {}, after epoch {} of {}: {}", row.runs.size(), repeat_, epoch,
                                     experiment_.epochs, record["headline"].get<std::string>());
    outputs_.show_running(std::move(record));
  }

  // Keeps the trained model before anything else that is written after training.
  void measure(const cli::TrainingData& data, const Json& record, std::deque<OutputFile>& model,
               std::deque<measure::EventFile>& events, report::EachOutput& each, measure::Row& row) {
    const SampleInfo& info = data.train->info();
    const int64_t samples = measure::split_of(experiment_, info).trained;  // of an epoch
    cli::ProgressDisplay display(quiet_, data.synthetic ? info.name : "", repeat_, experiment_.epochs, samples,
                                 experiment_.batch * experiment_.accumulate);
    bool wants_model = model.front().is_wanted();
    int64_t diverged = 0;
    for (int64_t run = 1; run <= repeat_; ++run) {
      const std::string where = repeat_ == 1 ? "" : fmt::format(" of run {}", run);
      display.start_run(run);
      TrainHooks hooks;
      measure::Course course(experiment_.seed + static_cast<uint64_t>(run - 1), samples,
                             experiment_.batch * experiment_.accumulate);
      measure::EventFile* curves = events.empty() ? nullptr : &events[static_cast<size_t>(run - 1)];
      int64_t steps = 0;  // of this run so far
      const auto draw = [&](const std::vector<measure::Scalar>& points) {
        if (curves && !each([&] { curves->add(steps, points); })) curves = nullptr;
      };
      double last_point = 0;
      bool continues = false;  // and has not drawn yet
      bool is_done = false;    // a run that was to be continued, and has no steps left
      hooks.on_step = [&](const Progress& progress) {
        display.on_step(progress);
        course.on_step(progress);
        is_done = false;
        steps = (progress.epoch - 1) * progress.steps_per_epoch + progress.step;
        if (curves && std::exchange(continues, false) && !each([&] { curves->restart(steps); })) curves = nullptr;
        if (curves && progress.seconds >= last_point + seconds_between_points) {
          draw({{"training/loss_so_far_in_epoch", progress.loss}});
          last_point = progress.seconds;
        }
        if (hooks.is_interrupted) return;  // training ends, and what it has is saved
        cli::check_signals(
            fmt::format("after step {} of epoch {}{}; no results were written", progress.step, progress.epoch, where));
      };
      hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) {
        display.on_epoch(epoch, result);
        course.on_epoch(result);
        draw({{"training/loss", result.training_loss},
              {"training/samples_per_second", static_cast<double>(samples) / result.seconds}});
        if (result.evaluation_seconds > 0)
          draw({{"test/loss", result.test.loss}, {"test/accuracy", result.test.accuracy}});
        show_so_far(record, row, course.so_far(), epoch);
        if (hooks.is_interrupted) return;
        cli::check_signals(fmt::format("after epoch {}{}; no results were written", epoch, where));
      };
      hooks.on_validation = [&](const Validation& v) {
        if (quiet_) return;
        display.print_line(fmt::format("{} after step {} of epoch {}: accuracy {:.2f} %, loss {:.4f}\n",
                                       experiment_.held_out > 0 ? "validation" : "test", v.step, v.epoch,
                                       v.result.accuracy * 100, v.result.loss));
      };
      if (ranks_.is_on() || (wants_model && run == repeat_)) {
        cli::allow_to_finish();
        hooks.is_interrupted = cli::stop_requested;
      }
      saving_.attach(hooks);
      if (const TrainingState* from = hooks.resume_from) {
        continues = is_done = true;
        steps = from->number("epoch") * from->number("step");  // where a test is the first to be drawn: an epoch's end
      }
      const auto save_last = [&](StagedModel& trained) {
        if (run < repeat_) return;
        if (wants_model) {
          wants_model = each([&] {
            write_safetensors(model.front(), measure::FineTuning::parameters(trained, experiment_),
                              describe(description_of(data)));
          });
        }
        each([&] { fine_tuning_.save(trained, experiment_); });
        written_ = write_text(trained, data);
      };
      try {
        row.runs.push_back(measure::run_experiment(
            experiment_, *data.train, *data.test, experiment_.seed + static_cast<uint64_t>(run - 1), hooks, save_last));
      } catch (const Error& error) {
        // A diverged run is a result, and no reason to leave out those after it.
        if (error.code() != ExitCode::numeric || repeat_ == 1) throw;
        if (diverged++ == 0) row.error = fmt::format("run {}: {}", run, error.what());
        continue;
      }
      row.runs.back().course = course.so_far().course;
      if (memory_.is_on()) row.runs.back().plan = memory_.plan()->checkpoint;
      const TrainResult& result = row.runs.back().result;
      std::string left = "no results were written";
      if (wants_model && run == repeat_ && !(result.interrupted && saving_.is_on()) && each([&] { keep_all(model); })) {
        left = fmt::format("{} has the model as it was then", printable_text(save_model_));
        if (!quiet_ && !result.interrupted) say_next(*data.train);
      }
      const auto finish = [&] { saving_.finish(result, left); };
      result.interrupted ? finish() : void(each(finish));
      if (quiet_ && !is_done) continue;
      if (row.runs.back().loading) cli::notice("loader: " + row.runs.back().loading->text());
      if (!result.ended_early.empty()) {
        cli::notice(fmt::format("training ended early: {}{}", result.ended_early,
                                saving_.is_on() ? "; --resume with a larger limit goes on" : ""));
      }
      if (!result.kept.empty()) cli::notice("the weights are those of " + result.kept);
    }
    if (diverged > 0) fail(ExitCode::numeric, "{} of {} runs diverged; {}", diverged, repeat_, row.error);
  }

  void say_next(const SampleSource& data) const {
    const bool is_text = data.info().is_text();
    cli::notice(fmt::format("{}: the trained model; next: {} {} --model {}{}", printable_text(save_model_),
                            cli::program_name, is_text ? "generate" : "predict", cli::quoted(save_model_),
                            is_text ? "" : " IMAGE"));
  }

  ModelDescription description_of(const cli::TrainingData& data) const {
    const SampleInfo& info = data.train->info();
    const cli::DataChoice& choice = data.choice;
    return {experiment_.model,
            measure::sizes_for(info, experiment_.blocks),
            info.scale,
            info.name,
            info.vocabulary,
            info.class_names,
            ModelDescription::Origin{choice.name, cli::size_text(choice), choice.test_split, data.test->info().count,
                                     data.contents}};
  }

  // A sample for the report of what the trained model of a text writes; null for images, and where there is no report.
  Json write_text(StagedModel& trained, const cli::TrainingData& data) const {
    const SampleInfo& info = data.train->info();
    const bool may_be_stopped = saving_.is_on() || ranks_.is_on();  // and still has something to save
    if (info.vocabulary.empty() || !outputs_.any() || (may_be_stopped && cli::stop_requested())) return nullptr;
    const GenerateOptions options = {.length = 400, .temperature = 0.8, .seed = experiment_.seed};
    std::string text;
    generate(
        trained, description_of(data), default_prompt(info.vocabulary), options,
        [&](char symbol) {
          if (!may_be_stopped) cli::check_signals("while the trained model wrote a text; no results were written");
          // A symbol is a byte, and a record is UTF-8.
          static_cast<unsigned char>(symbol) < 0x80 ? text.push_back(symbol) : void(text += "\uFFFD");
          return true;
        },
        experiment_.device);
    return {{"temperature", options.temperature}, {"seed", options.seed}, {"text", text}};
  }

  measure::StepProfile profile_after_runs(const cli::TrainingData& data) const {
    TrainHooks hooks;
    if (ranks_.is_on()) {
      hooks.is_interrupted = cli::stop_requested;
    } else {
      hooks.on_step = [](const Progress&) { cli::check_signals("while profiling steps; no record was written"); };
    }
    measure::StepProfile profile = measure::profile_steps(experiment_, *data.train, *data.test, trace_steps_, hooks);
    cli::check_signals("while profiling steps; no record was written");
    if (profile.profile.dropped > 0) {
      cli::notice(fmt::format("--trace-steps {}: the trace is full, {} later spans were left out; give it fewer steps",
                              trace_steps_, profile.profile.dropped));
    }
    return profile;
  }

  std::string headline(const cli::TrainingData& data) const {
    const std::string batch = experiment_.accumulate == 1
                                  ? fmt::format("{}", experiment_.batch)
                                  : fmt::format("{} x {}", experiment_.accumulate, experiment_.batch);
    const std::string ranks = ranks_.is_on() ? fmt::format(" on each of {} ranks", ranks_.count()) : "";
    std::string device = hs::name(experiment_.device);
    if (experiment_.device == Device::cuda) {
      const int64_t steps = experiment_.graph_steps;
      device += fmt::format(", cache {}, ", cli::name(experiment_.loading.cache));
      device += !experiment_.graph ? "no graph" : fmt::format("graph of {} step{}", steps, steps == 1 ? "" : "s");
    }
    const SampleInfo& info = data.train->info();
    const std::string scale = info.is_text() ? ""
                                             : fmt::format(", pixels of mean {:.4f} and deviation {:.4f}",
                                                           info.scale.mean, info.scale.deviation);
    return fmt::format(
        "{} on {}: {} for training, {} for the test{}, epochs {}, batch {}, {}, {}, device {}, threads {}{}",
        experiment_.model, info.name, info.count, data.test->info().count, scale, experiment_.epochs, batch,
        experiment_.optimizer.name, hs::name(experiment_.precision), device, threads(), ranks);
  }

  void print_plan(const cli::TrainingData& data) const {
    measure::DryRun plan({"runs", "seconds of a run", "peak MiB"});
    plan.add({std::to_string(repeat_)}, measure::forecast(experiment_, *data.train, *data.test), repeat_);
    if (!ranks_.is_first()) return;
    plan.print(headline(data), data.train->info().name, fmt::format("{} run{}", repeat_, repeat_ == 1 ? "" : "s"));
  }

  void warm_up(const cli::TrainingData& data, const cli::ForcedKernels& forced) const {
    const auto check_early_signals = [] { cli::check_signals("before training; no results were written"); };
    TrainHooks hooks;
    hooks.on_step = [&](const Progress&) { check_early_signals(); };
    check_early_signals();
    const measure::KernelUse use;
    {
      const measure::KernelTrace trace;
      measure::warm_up(experiment_, *data.train, *data.test, hooks);
      if (experiment_.precision == Precision::f16 || experiment_.precision == Precision::bf16) print_precision(trace);
    }
    check_early_signals();
    forced.check_used(use.since(), fmt::format("training {} with {}", experiment_.model, experiment_.optimizer.name));
    settings_.tuning.check_used();
  }

  // Rank 0 writes for all.
  void join_ranks() {
    ranks_.join(settings_.threads);
    if (!ranks_.is_on()) return;
    if (ranks_.is_first()) {
      if (!quiet_) cli::notice(ranks_.line());
      return;
    }
    quiet_ = true;
    outputs_.discard();
    fine_tuning_.discard();
    save_model_ = tensorboard_ = trace_ = "";
  }

  // Where and how a step runs; refuses combinations that this device or these ranks cannot run.
  void settle_device() {
    experiment_.device = cli::resolve_device(settings_.device);
    experiment_.precision = cli::resolve_precision(settings_.precision, experiment_.device);
    const bool has_graphs = experiment_.device == Device::cuda;
    if (graph_ == "on" && !has_graphs) {
      fail(ExitCode::usage, "--graph on: only cuda captures graphs, and this runs on {}; use --graph off or auto",
           hs::name(experiment_.device));
    }
    experiment_.graph = graph_ != "off" && has_graphs;
    if (residency_.graph_steps > 1 && (!experiment_.graph || experiment_.accumulate > 1 ||
                                       residency_.cache.value_or(CacheMode::device) != CacheMode::device)) {
      fail(ExitCode::usage, "--graph-steps {}: needs a graph (--graph on), --cache device and --accumulate 1",
           residency_.graph_steps);
    }
    ranks_.check(experiment_.batch, experiment_.accumulate);
    ranks_.use(experiment_.device);
    if (experiment_.noise_scale && (experiment_.graph || ranks_.is_on())) {
      fail(ExitCode::usage, "--noise-scale: looks into each step of one process; give --graph off, and no mpirun");
    }
    experiment_.sum = ranks_.sum();
    if (experiment_.noise_scale && experiment_.sum.tree) {
      fail(ExitCode::usage, "--noise-scale: reads the sum as it grows, and --reduce tree has none; give --reduce fast");
    }
    settings_.tuning.use(experiment_.device);
  }

  // What a record says before anything has run.
  Json describe_run(const cli::Flags& flags, const cli::TrainingData& data) const {
    Json record = report::new_record(name(), experiment_.device, flags.config(), report::describe_data(data));
    record["headline"] = headline(data);
    return record;
  }

  // All ranks take part.
  void write_trace(const measure::StepProfile& profile, const Json& record, OutputFile& trace) const {
    const std::string text = ranks_.trace(profile, {{"command", name()},
                                                    {"data", record["data"]},
                                                    {"config", record["config"]},
                                                    {"environment", record["environment"]}});
    if (!trace.is_wanted()) return;
    trace.write(text);
    trace.finish();
  }

  // Opens the data, and settles what follows from it.
  cli::TrainingData open_data(const cli::Flags& flags) {
    cli::TrainingData data =
        cli::open_training_data(settings_.data, {train_, !flags.given("--train")}, {test_, !flags.given("--test")},
                                settings_.context, fine_tuning_.vocabulary());
    measure::settle_residency(residency_, saving_.counts_steps(), *data.train, *data.test, experiment_);
    fine_tuning_.check_fits(data);
    scale_learning_rate(flags, data.train->info().count);
    if (memory_.is_on()) {
      memory_.apply(experiment_, !settings_.precision, *data.train, *data.test);
      if (!quiet_) cli::notice(memory_.line());
    }
    return data;
  }

  // Of the record.
  Json row_of(const measure::Row& row, const cli::TrainingData& data, const Json& step, const Json& ranks) const {
    Json json = to_json(row, goal_, row.error.empty() ? 0 : repeat_ - std::ssize(row.runs));
    json["step"] = step;
    json["ranks"] = ranks;
    json["written"] = written_;
    json["cached_bytes"] = measure::cached_bytes(experiment_, *data.train, *data.test);
    json["memory_plan"] = memory_.to_json();
    json["saving"] = row.runs.empty() ? Json(nullptr) : saving_.to_json(row.runs[0].result);
    return json;
  }

  // written: the row of the record.
  void show(const cli::TrainingData& data, const measure::Row& row, const Json& written, bool on_stderr) const {
    const std::string& set = data.train->info().name;
    const std::string report = headline(data) + "\n" + to_table(row, set) + measure::plan_table(row, set) +
                               measure::noise_line(row, set) + measure::Ranks::verdict_line(written["ranks"]) +
                               measure::goal_line(written, set);
    on_stderr ? cli::write_stderr(report) : cli::write_stdout(report);
    if (!quiet_) outputs_.print_report_path();
  }

  // What rank 0 was told counts: steps that are profiled, or only tried, are steps of all ranks. Returns whether any
  // are profiled.
  bool settle_ranks(const cli::Flags& flags) {
    const std::string own_trace = trace_;
    join_ranks();
    settle_judging(flags);
    const bool traces = !ranks_.from_first(own_trace).empty();
    trace_steps_ = std::stoll(ranks_.from_first(std::to_string(trace_steps_)));
    dry_run_ = !ranks_.from_first(dry_run_ ? "--dry-run" : "").empty();
    return traces;
  }

  void run(const cli::Flags& flags) override {
    try {
      train(flags);
    } catch (const std::exception& error) {
      outputs_.show_failure(error.what());
      throw;
    }
  }

  void train(const cli::Flags& flags) {
    check_combinations(flags);
    const bool traces = settle_ranks(flags);
    OutputFile trace(trace_, "--trace");
    std::deque<OutputFile> model;
    model.emplace_back(save_model_, "--save-model");
    if (model.front().is_stream())
      fail(ExitCode::usage, "--save-model {}: is no regular file, expected one", save_model_);
    outputs_.open({&trace, &model.front()});
    fine_tuning_.open(flags, experiment_, settings_.context);
    cli::use_threads(settings_.threads);
    cli::load_plugins(settings_.plugins);
    const cli::ForcedKernels forced(experiment_.kernels);
    memory_.check(flags, saving_.is_on(), ranks_.is_on(), residency_);
    settle_device();
    const cli::TrainingData data = open_data(flags);
    if (dry_run_) return print_plan(data), ranks_.leave();
    std::deque<measure::EventFile> events = open_event_files(flags.given("--resume"));

    Json record = describe_run(flags, data);
    saving_.open(flags, experiment_.device, data, quiet_, ranks_);
    warm_up(data, forced);
    if (!quiet_) cli::notice(headline(data));
    const measure::KernelUse use;
    measure::Row row{.name = experiment_.model, .runs = {}, .error = ""};
    Json step, ranks;
    report::EachOutput each;
    const auto write_record = [&] {
      record["kernels"] = use.since();
      record["choices"] = noted_choices();
      record["rows"] = Json::array({row_of(row, data, step, ranks)});
      outputs_.write(record);
    };
    try {
      ranks_.start_measuring();
      measure(data, record, model, events, each, row);
      ranks = ranks_.to_json(row.runs);
    } catch (const Error& error) {
      // A diverged run is a result; other failures are not.
      if (error.code() != ExitCode::numeric) throw;
      ranks = ranks_.to_json(row.runs);
      row.error = error.what();
      write_record();
      throw;
    }
    bool is_traced = true;
    if (traces || (!ranks_.is_on() && outputs_.any())) {
      const measure::StepProfile profile = profile_after_runs(data);
      step = measure::typical_step(profile);
      if (traces) is_traced = each([&] { write_trace(profile, record, trace); });
    }
    ranks_.leave();
    each(write_record);
    if (is_traced) each([&] { trace.keep(); });
    show(data, row, record["rows"][0], outputs_.use_stdout() || trace.is_stdout());
    each.end();
    measure::check_goal(record["rows"], goal_);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace hs::bench::commands
