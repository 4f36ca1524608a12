// halfstep-bench techniques: every technique alone and all of them together against the same baseline, in one process,
// interleaved (A B C A B C), so that a temporary disturbance of the machine affects all of them.
#include <cmath>
#include <optional>
#include <set>

#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/row.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/step_profile.h"
#include "bench/measure/target.h"
#include "bench/measure/techniques.h"
#include "bench/measure/work_folder.h"
#include "data/io/sample_writer.h"
#include "models/models.h"

namespace hs::bench::commands {
namespace {

struct Size {
  int64_t train, test, epochs, repeat;
};
constexpr Size default_size = {4000, 1000, 2, 5};
constexpr Size quick_size = {640, 256, 1, 3};
constexpr Size full_size = {20000, 5000, 5, 5};  // the article's

std::string text_of(const Size& size) {
  return fmt::format("{} digits, {} epochs, {} runs", size.train, size.epochs, size.repeat);
}

// The samples as image files, one each, which is a common form of data sets: PGM, or PNG if there are several channels.
// "No cache" then means what it means elsewhere: a file to open and decode for every sample of every epoch.
std::unique_ptr<SampleSource> as_files(const SampleSource& source, const std::filesystem::path& folder, Part part) {
  const SampleInfo& info = source.info();
  const measure::SetFormat format = {.format = info.channels == 1 ? "pgm" : "png", .lifetime = Lifetime::temporary};
  copy_samples(source, info.count, *measure::write_split(format, folder, part, info));
  return open_image_folder(folder / hs::name(part), {info.name, info.scale});
}

// What trains the same step: `train` with the flags that describe one.
std::string train_command(const cli::Flags& flags) {
  const std::set<std::string> of_measuring = {"--train",  "--test",   "--epochs",
                                              "--repeat", "--target", "--price-per-hour"};
  Json settings = flags.settings();
  for (const std::string& flag : of_measuring) settings.erase(flag);
  return "train" + cli::words_of(settings);
}

class TechniquesCommand : public RecordingCommand {
  measure::StepFlags settings_;
  measure::Experiment& experiment_ = settings_.experiment;
  Size size_ = default_size;
  bool quick_ = false, full_ = false, list_ = false, dry_run_ = false, quiet_ = false;
  measure::Goal goal_;
  std::optional<measure::WorkFolder> files_;  // of data_, which is declared after it
  cli::TrainingData data_;
  measure::Plan plan_;

  void declare(cli::Flags& flags) override {
    flags.examples({"techniques --full --json techniques.json --html techniques.html",
                    "techniques --target accuracy=0.95 --price-per-hour 2.10", "techniques --dry-run"},
                   "docs/chapters/12_benchmarks.md says what is measured and how.");
    settings_.declare(flags, {.step = false});
    flags.train(size_.train);
    flags.test(size_.test);
    flags.epochs(size_.epochs);
    flags.batch(experiment_.batch);
    flags.repeat(size_.repeat);
    flags.record("schedule", [] { return "constant"; });
    flags.record("warmup", [] { return 0; });
    flags.record("interleaved", [] { return true; });
    flags.record("warmed_up", [] { return true; });
    goal_.declare(flags, "Report the time to this in the test");
    flags.on_off("--quick", own(), quick_, "The smallest size that shows anything: " + text_of(quick_size));
    flags.on_off("--full", own(), full_, "The article's size: " + text_of(full_size));
    flags.on_off("--list", own(), list_, "Name the techniques, and end");
    flags.dry_run(dry_run_);
    flags.quiet(quiet_);
  }

  void take_size(const cli::Flags& flags) {
    if (quick_ && full_) fail(ExitCode::usage, "--quick and --full: give one of them");
    const Size& wanted = quick_ ? quick_size : full_ ? full_size : default_size;
    if (!flags.given("--train")) size_.train = wanted.train;
    if (!flags.given("--test")) size_.test = wanted.test;
    if (!flags.given("--epochs")) size_.epochs = wanted.epochs;
    if (!flags.given("--repeat")) size_.repeat = wanted.repeat;
    experiment_.epochs = size_.epochs;
  }

  void print_list() const {
    report::Table table = {.heads = {"technique", "made to save", "what it is"}, .lines = {}, .left = 3};
    for (const measure::Technique& technique : measure::techniques()) {
      table.lines.push_back({technique.name, technique.for_memory ? "memory" : "time", technique.idea});
    }
    cli::write_stdout(to_text(table));
  }

  void print_plan() const {
    measure::DryRun dry_run({"row", "group", "seconds of a run", "peak MiB"}, 2);
    for (const measure::TechniqueRow& row : plan_.rows) {
      dry_run.add({row.measured.name, row.group}, measure::forecast(row.experiment, *data_.train, *data_.test),
                  size_.repeat);
    }
    dry_run.print(headline(), data_name(), fmt::format("{} rows, {} runs of each", plan_.rows.size(), size_.repeat));
  }

  const std::string& data_name() const { return data_.train->info().name; }
  const measure::Row& first_row() const { return plan_.rows[0].measured; }

  // For who waits for the table, which has the medians of all passes.
  std::string first_figure(const measure::TechniqueRow& row) const {
    const measure::Row &measured = row.measured, &baseline = first_row();
    const double seconds = measured.runs[0].result.seconds;
    std::string text = fmt::format("{}{}: {:.2f} s", row.group == "cumulative" ? "+ " : "", measured.name, seconds);
    if (&measured != &baseline && !baseline.runs.empty()) {
      text += fmt::format(", {:.2f} times as fast as the baseline", baseline.runs[0].result.seconds / seconds);
    }
    return text + " in the first pass\n";
  }

  // A diverged run is a result and the last one of its row; other failures end the program.
  void measure() {
    std::vector<measure::TechniqueRow>& rows = plan_.rows;
    const std::string synthetic = data_.synthetic ? data_name() : "", label = data_.synthetic ? synthetic + "  " : "";
    cli::ProgressDisplay display(quiet_, synthetic, std::ssize(rows) * size_.repeat, size_.epochs,
                                 data_.train->info().count, experiment_.batch);
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) {
      display.on_step(progress);
      check_signals();
    };
    TrainHooks warming;
    warming.on_step = [](const Progress&) { cli::check_signals("before the first pass; no results were written"); };
    for (measure::TechniqueRow& row : rows) {
      const measure::KernelUse use;
      measure::warm_up(row.experiment, *data_.train, *data_.test, warming);
      row.kernels = use.since();
    }
    const auto start = Clock::now();
    const auto run = [&](size_t i, int64_t turn) {
      measure::Row& row = rows[i].measured;
      display.start_run(turn * std::ssize(rows) + static_cast<int64_t>(i) + 1);
      try {
        row.runs.push_back(measure::run_experiment(rows[i].experiment, *data_.train, *data_.test,
                                                   experiment_.seed + static_cast<uint64_t>(turn), hooks));
        if (turn == 0) display.print_line(label + first_figure(rows[i]));
      } catch (const Error& error) {
        if (error.code() != ExitCode::numeric) throw;
        row.error = error.what();
      }
      return row.error.empty();
    };
    measure::in_turns(rows.size(), size_.repeat, run, [&](int64_t turn) {
      const double elapsed = seconds_since(start);
      display.print_line(
          fmt::format("{}pass {} of {}: {} rows, {:.0f} s, {:.0f} s left\n", label, turn + 1, size_.repeat, rows.size(),
                      elapsed, elapsed / static_cast<double>(turn + 1) * static_cast<double>(size_.repeat - turn - 1)));
    });
  }

  Json rows_to_json() const {
    Json all = Json::array();
    for (const measure::TechniqueRow& what : plan_.rows) {
      const measure::Experiment& experiment = what.experiment;
      const bool is_baseline = all.empty();
      Json row = to_json(what.measured, goal_, what.measured.error.empty() ? 0 : 1);
      row["group"] = what.group;
      row["for_memory"] = what.for_memory;
      row["on_by_default"] = !is_baseline && what.flags.empty();
      row["train_flags"] = row["on_by_default"] ? "on by default" : what.flags;
      row["experiment"] = {
          {"precision", hs::name(experiment.precision)}, {"batch", experiment.batch},
          {"accumulate", experiment.accumulate},         {"graph", experiment.graph},
          {"prefetch", experiment.loading.prefetch},     {"cache", cli::name(experiment.loading.cache)}};
      row["kernels"] = what.kernels;
      row["cached_bytes"] = measure::cached_bytes(experiment, *data_.train, *data_.test);
      all.push_back(row);
    }
    measure::add_comparisons(all);
    return all;
  }

  Json step_of(const measure::Experiment& experiment) const {
    constexpr int64_t steps = 10;
    TrainHooks hooks;
    hooks.on_step = [](const Progress&) { cli::check_signals("while profiling steps; no results were written"); };
    return measure::typical_step(measure::profile_steps(experiment, *data_.train, *data_.test, steps, hooks));
  }

  std::string headline() const {
    return fmt::format(
        "{} on {}: {} for training, {} for the test, epochs {}, {} samples a step, {}, device {}, threads {}, runs {}",
        experiment_.model, data_name(), data_.train->info().count, data_.test->info().count, size_.epochs,
        experiment_.batch, experiment_.optimizer.name, hs::name(experiment_.device), threads(), size_.repeat);
  }

  void run(const cli::Flags& flags) override {
    if (list_) return print_list();
    take_size(flags);
    outputs_.open();
    settings_.use();
    data_ = cli::open_training_data(settings_.data, {size_.train, false}, {size_.test, false}, {settings_.context});
    Json record = report::new_record(name(), experiment_.device, flags.config(), report::describe_data(data_));
    record["data"]["as_files"] = data_.train->is_in_memory();
    if (data_.train->is_in_memory()) {
      files_.emplace();
      data_.train = as_files(*data_.train, files_->path(), Part::train);
      data_.test = as_files(*data_.test, files_->path(), Part::test);
    }
    plan_ = measure::make_plan(measure::baseline(experiment_));
    if (dry_run_) return print_plan();

    measure();
    settings_.tuning.check_used();
    record["choices"] = noted_choices();
    record["rows"] = rows_to_json();
    record["absent"] = plan_.absent;
    if (outputs_.any()) {
      for (const size_t row : {size_t{0}, plan_.rows.size() - 1}) {
        if (!plan_.rows[row].measured.error.empty()) continue;
        record["rows"][row]["step"] = step_of(plan_.rows[row].experiment);
      }
    }
    record["headline"] = headline();
    measure::put_answer(record, measure::advice(record["rows"], train_command(flags)));
    outputs_.finish(record);
    for (const measure::TechniqueRow& row : plan_.rows) {
      if (!row.measured.error.empty()) fail(ExitCode::numeric, "{}: {}", row.measured.name, row.measured.error);
    }
    measure::check_goal(record["rows"], goal_);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_techniques_command() { return std::make_unique<TechniquesCommand>(); }

}  // namespace hs::bench::commands
