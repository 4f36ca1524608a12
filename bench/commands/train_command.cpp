// halfstep-bench train: trains one configuration, one or more times, and reports time, accuracy and memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/cli/forced_kernels.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/train_part.h"
#include "engine/storage.h"

namespace hs::bench::commands {
namespace {

class TrainCommand : public RecordingCommand {
  measure::TrainJob job_;
  measure::StepFlags& settings_ = job_.settings;
  measure::Experiment& experiment_ = job_.experiment;
  measure::Ranks& ranks_ = job_.ranks;
  // What is not training itself, in the order of its calls: see bench/measure/train_part.h.
  const std::array<measure::MadePart, 7> parts_ = {measure::make_run_flags(job_),    measure::make_fine_tuning(job_),
                                                   measure::make_model_output(job_), measure::make_memory_budget(job_),
                                                   measure::make_saving(job_),       measure::make_curves(job_),
                                                   measure::make_trace_output(job_)};
  int64_t train_ = cli::automatic_samples, test_ = cli::automatic_samples;
  bool dry_run_ = false;

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
    flags.repeat(job_.repeat);
    ranks_.declare(flags);
    for (const auto& part : parts_) part->declare(flags);
    flags.dry_run(dry_run_);
    flags.quiet(job_.quiet);
  }

  void run(const cli::Flags& flags) override {
    try {
      run_in_order(flags);
    } catch (const std::exception& error) {
      outputs_.show_failure(error.what());
      throw;
    }
  }

  void run_in_order(const cli::Flags& flags) {
    for (const auto& part : parts_) part->check_flags(flags);
    join_ranks();
    settings_.use();
    for (const auto& part : parts_) part->with_device(flags);
    outputs_.open(job_.files);
    job_.has_report = outputs_.any();
    const cli::ForcedKernels forced(experiment_.kernels);
    ranks_.check(experiment_.batch, experiment_.accumulate);
    ranks_.use(experiment_.device);
    experiment_.sum = ranks_.sum();
    job_.text.context = settings_.context;
    job_.data.emplace(cli::open_training_data(settings_.data, {train_, !flags.given("--train")},
                                              {test_, !flags.given("--test")}, job_.text));
    for (const auto& part : parts_) part->with_data(flags);
    if (dry_run_) {
      print_plan();
      return ranks_.leave();
    }
    for (const auto& part : parts_) part->before_training(flags);
    // What a record says before anything has run.
    Json record = report::new_record(name(), experiment_.device, flags.config(), report::describe_data(*job_.data));
    record["headline"] = headline();
    check_by_short_run(forced);
    if (!job_.quiet) cli::notice(headline());
    measure_and_write(record);
  }

  void measure_and_write(Json& record) {
    const measure::KernelUse use;
    measure::Row row{.name = experiment_.model, .runs = {}, .error = ""};
    Json ranks;
    const auto write_record = [&] {
      record["kernels"] = use.since();
      record["choices"] = noted_choices();
      record["rows"] = Json::array({row_of(row, ranks)});
      outputs_.write(record);
    };
    try {
      ranks_.start_measuring();
      run_all(record, row);
      ranks = ranks_.to_json(row.runs);
    } catch (const Error& error) {
      if (error.code() != ExitCode::numeric) throw;
      ranks = ranks_.to_json(row.runs);
      row.error = error.what();
      write_record();
      throw;
    }
    for (const auto& part : parts_) part->after_runs(record);
    ranks_.leave();
    job_.each(write_record);  // an error of writing waits for end(), so that the table is shown
    show(row, record["rows"][0]);
    job_.each.end();
    measure::check_goal(record["rows"], job_.goal);
  }

  // Rank 0 writes for all. If it was given --dry-run, all ranks do a dry run.
  void join_ranks() {
    ranks_.join(settings_.threads);
    dry_run_ = !ranks_.from_first(dry_run_ ? "--dry-run" : "").empty();
    if (!ranks_.is_on()) return;
    if (!ranks_.is_first()) {
      job_.quiet = true;
      outputs_.discard();
    } else if (!job_.quiet) {
      cli::notice(ranks_.line());
    }
  }

  void check_by_short_run(const cli::ForcedKernels& forced) const {
    const auto check_early_signals = [] { cli::check_signals("before training; no results were written"); };
    TrainHooks hooks;
    hooks.on_step = [&](const Progress&) { check_early_signals(); };
    check_early_signals();
    const measure::KernelUse use;
    {
      const measure::KernelTrace trace;
      measure::warm_up(experiment_, *job_.data->train, *job_.data->test, hooks);
      const bool is_mixed = experiment_.precision == Precision::f16 || experiment_.precision == Precision::bf16;
      if (is_mixed && !job_.quiet) {
        cli::notice(fmt::format("--precision {}: {}; profile kernels lists them", hs::name(experiment_.precision),
                                measure::use_of_16_bits(trace)));
      }
    }
    check_early_signals();
    forced.check_used(use.since(), fmt::format("training {} with {}", experiment_.model, experiment_.optimizer.name));
    settings_.tuning.check_used();
  }

  // What is known of all runs so far, this one included.
  void show_so_far(Json record, measure::Row row, measure::RunRecord run, int64_t epoch) {
    if (!outputs_.page_is_due()) return;
    run.peak_bytes = memory_stats(experiment_.device).peak;
    row.runs.push_back(std::move(run));
    record["rows"] = Json::array({to_json(row)});
    record["headline"] = fmt::format("Run {} of {}, after epoch {} of {}: {}", row.runs.size(), job_.repeat, epoch,
                                     experiment_.epochs, record["headline"].get<std::string>());
    outputs_.show_running(std::move(record));
  }

  void run_all(const Json& record, measure::Row& row) {
    const SampleInfo& info = job_.data->train->info();
    const int64_t samples = measure::split_of(experiment_, info).trained;  // of an epoch
    cli::ProgressDisplay display(job_.quiet, job_.data->synthetic ? info.name : "", job_.repeat, experiment_.epochs,
                                 samples, experiment_.batch * experiment_.accumulate);
    int64_t diverged = 0;
    for (job_.run = 1; job_.run <= job_.repeat; ++job_.run) {
      display.start_run(job_.run);
      try {
        run_once(record, display, samples, row);
      } catch (const Error& error) {
        // A diverged run is a result, and no reason to leave out those after it.
        if (error.code() != ExitCode::numeric || job_.repeat == 1) throw;
        if (diverged++ == 0) row.error = fmt::format("run {}: {}", job_.run, error.what());
      }
    }
    // Caught in measure_and_write(), which writes the record and throws on.
    if (diverged > 0) fail(ExitCode::numeric, "{} of {} runs diverged; {}", diverged, job_.repeat, row.error);
  }

  void run_once(const Json& record, cli::ProgressDisplay& display, int64_t samples, measure::Row& row) {
    const uint64_t seed = experiment_.seed + static_cast<uint64_t>(job_.run - 1);
    const std::string where = job_.repeat == 1 ? "" : fmt::format(" of run {}", job_.run);
    measure::Course course(seed, samples, experiment_.batch * experiment_.accumulate);
    job_.epoch = 1, job_.step = 0;
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) {
      display.on_step(progress);
      course.on_step(progress);
      job_.epoch = progress.epoch, job_.step = progress.step;
    };
    hooks.on_epoch = [&](int64_t epoch, const EpochResult& result) {
      display.on_epoch(epoch, result);
      course.on_epoch(result);
      show_so_far(record, row, course.so_far(), epoch);
    };
    hooks.on_validation = [&](const Validation& v) {
      if (job_.quiet) return;
      display.print_line(fmt::format("{} after step {} of epoch {}: accuracy {:.2f} %, loss {:.4f}\n",
                                     experiment_.held_out > 0 ? "validation" : "test", v.step, v.epoch,
                                     v.result.accuracy * 100, v.result.loss));
    };
    if (ranks_.is_on()) measure::end_when_interrupted(hooks);
    for (const auto& part : parts_) part->before_run(hooks);
    // With is_interrupted training ends by itself, and after_run() of its parts says what is left of it.
    const auto check_signals = [&](const std::string& after) {
      if (!hooks.is_interrupted) cli::check_signals(fmt::format("after {}{}; no results were written", after, where));
    };
    measure::then(hooks.on_step, [&](const Progress& progress) {
      check_signals(fmt::format("step {} of epoch {}", progress.step, progress.epoch));
    });
    measure::then(hooks.on_epoch,
                  [&](int64_t epoch, const EpochResult&) { check_signals(fmt::format("epoch {}", epoch)); });
    const auto give_model_of_last_run = [&](StagedModel& trained) {
      if (job_.run < job_.repeat) return;
      for (const auto& part : parts_) part->with_model(trained);
    };
    row.runs.push_back(
        measure::run_experiment(experiment_, *job_.data->train, *job_.data->test, seed, hooks, give_model_of_last_run));
    measure::RunRecord& run = row.runs.back();
    run.course = course.so_far().course;
    for (const auto& part : parts_) part->after_run(run);
    // A run that was to be continued, and had no steps left, says so.
    if (!job_.quiet || (hooks.resume_from && job_.step == 0)) say_how_it_ended(run);
  }

  void say_how_it_ended(const measure::RunRecord& run) const {
    if (run.loading) cli::notice("loader: " + run.loading->text());
    if (!run.result.ended_early.empty()) {
      cli::notice(fmt::format("training ended early: {}{}", run.result.ended_early,
                              job_.is_saved ? "; --resume with a larger limit goes on" : ""));
    }
    if (!run.result.kept.empty()) cli::notice("the weights are those of " + run.result.kept);
  }

  std::string headline() const {
    const cli::TrainingData& data = *job_.data;
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
    const std::string scale = info.is_text()           ? ""
                              : info.type != DType::u8 ? ", values as they are"
                                                       : fmt::format(", pixels of mean {:.4f} and deviation {:.4f}",
                                                                     info.scale.mean, info.scale.deviation);
    return fmt::format(
        "{} on {}: {} for training, {} for the test{}, epochs {}, batch {}, {}, {}, device {}, threads {}{}",
        experiment_.model, info.name, info.count, data.test->info().count, scale, experiment_.epochs, batch,
        experiment_.optimizer.name, hs::name(experiment_.precision), device, threads(), ranks);
  }

  void print_plan() const {
    const cli::TrainingData& data = *job_.data;
    measure::DryRun plan({"runs", "seconds of a run", "peak MiB"});
    plan.add({std::to_string(job_.repeat)}, measure::forecast(experiment_, *data.train, *data.test), job_.repeat);
    if (!ranks_.is_first()) return;
    plan.print(headline(), data.train->info().name, fmt::format("{} run{}", job_.repeat, job_.repeat == 1 ? "" : "s"));
  }

  // Of the record.
  Json row_of(const measure::Row& row, const Json& ranks) const {
    Json json = to_json(row, job_.goal, row.error.empty() ? 0 : job_.repeat - std::ssize(row.runs));
    json["ranks"] = ranks;
    json["cached_bytes"] = measure::cached_bytes(experiment_, *job_.data->train, *job_.data->test);
    for (const auto& part : parts_) part->add_to_row(json);
    return json;
  }

  // written: the row of the record.
  void show(const measure::Row& row, const Json& written) const {
    const std::string& set = job_.data->train->info().name;
    const std::string report = headline() + "\n" + to_table(row, set) + measure::plan_table(row, set) +
                               measure::noise_line(row, set) + measure::Ranks::verdict_line(written["ranks"]) +
                               measure::goal_line(written, set);
    const bool is_taken = outputs_.use_stdout() || std::ranges::any_of(job_.files, &OutputFile::is_stdout);
    is_taken ? cli::write_stderr(report) : cli::write_stdout(report);
    if (!job_.quiet) outputs_.print_report_path();
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace hs::bench::commands
