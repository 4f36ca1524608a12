// halfstep-bench bench peers: other engines beside this one, on the same training. This writes the samples that all
// train on, and the record; measure/peers.h runs the trainings.
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>

#include "bench/cli/console.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/commands/commands.h"
#include "bench/measure/peers.h"
#include "bench/measure/work_folder.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "data/formats/idx.h"
#include "engine/check.h"
#include "engine/parallel.h"

namespace hs::bench::commands {
namespace {

class PeersCommand : public cli::Command {
 public:
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void print_list() const;
  void print_plan() const;

  measure::PeerRuns runs_;
  std::string device_ = "auto";
  cli::DataChoice data_;
  bool quick_ = false, list_ = false, dry_run_ = false;
  report::Outputs outputs_;
};

void PeersCommand::declare(cli::Flags& flags) {
  flags.examples(R"(Examples:
  ./bench/run bench peers
  ./bench/run bench peers --python venv/bin/python --json peers.json --html peers.html
  ./bench/run bench peers --dry-run
  ./bench/run bench peers --ranks 2 --python venv/bin/python

docs/benchmarks.md says what is measured, bench/peers/README.md how to install the engines.
)");
  flags.choice("--model", runs_.model, measure::peer_models, "Model").record();
  flags.data(data_);
  flags.train(runs_.train);
  flags.test(runs_.test);
  flags.epochs(runs_.epochs).record();
  flags.batch(runs_.batch).record();
  flags.record("optimizer", [] { return "adam"; });
  flags.seed(runs_.seed).record();
  flags.learning_rate(runs_.learning_rate).record();
  flags.repeat(runs_.repeat).record();
  flags.threads(runs_.threads).record();
  flags.integer("--ranks", runs_.ranks, 1, 64, "Processes of each training, which share the threads; 1: other rows")
      .record();
  flags.list("--python", runs_.pythons, "PATH",
             "Python to look for engines in (default python3); repeatable, the first wins");
  flags.text("--peers", runs_.scripts, "DIR", "Folder of the scripts (default: bench/peers of the sources)");
  flags.real("--timeout", runs_.timeout, 0.1, 86400, "Seconds after which a single run is ended").record();
  flags.device(device_).record();
  flags.record("interleaved", [] { return true; });
  flags.record("warmed_up", [] { return true; });
  outputs_.declare(flags);
  flags.on_off("--quick", quick_, "The smallest size that shows anything: 1280 digits, 1 epochs, 3 runs");
  flags.list(list_);
  flags.on_off("--dry-run", dry_run_, "Print the commands and what is missing, and end");
  flags.quiet(runs_.quiet);
}

void PeersCommand::print_list() const {
  std::string text = fmt::format("{:<21}  {:<12}  what it is\n", "row", "engine");
  for (const measure::PeerRow& row : measure::peer_rows(runs_.device, runs_.ranks)) {
    text += fmt::format("{:<21}  {:<12}  {}\n", row.name, row.engine, row.idea);
  }
  cli::write_stdout(text);
}

void PeersCommand::print_plan() const {
  const std::map<std::string, measure::Engine> engines = measure::find_engines(runs_);
  std::string text = "DIR: a temporary folder with the samples as IDX files, called mnist\n", missing;
  int64_t rows = 0;
  for (const measure::PeerRow& row : measure::peer_rows(runs_.device, runs_.ranks)) {
    const measure::Engine& engine = engines.at(row.engine);
    if (!engine.missing.empty()) continue;
    ++rows;
    text += fmt::format("{}: {}\n", row.name, fmt::join(peer_command(engine, row, runs_, runs_.seed), " "));
  }
  for (const auto& [name, engine] : engines) {
    if (!engine.missing.empty()) missing += fmt::format("No row for {}: {}.\n", name, engine.missing);
  }
  cli::write_stdout(fmt::format("{}{} rows, {} runs of each, in turns\n{}", text, rows, runs_.repeat, missing));
}

// Writes the samples in a format that all peers read. Throws Error (bad_input) if the peers do not support the images.
void write_samples(const cli::TrainingData& data, const std::filesystem::path& folder) {
  const SampleInfo& images = data.train->info();
  if (images.rows != 28 || images.columns != 28 || images.channels != 1 || images.classes > 10) {
    fail(ExitCode::bad_input, "--data {}: images are {}x{}x{} in {} classes, and the peers are for 28x28x1 in 10",
         images.name, images.rows, images.columns, images.channels, images.classes);
  }
  std::filesystem::create_directory(folder);
  for (const auto& [source, stem] : {std::pair(data.train.get(), "train"), std::pair(data.test.get(), "t10k")}) {
    const auto writer = write_idx(folder / fmt::format("{}-images-idx3-ubyte", stem),
                                  folder / fmt::format("{}-labels-idx1-ubyte", stem), source->info());
    copy_samples(*source, source->info().count, *writer,
                 [](int64_t) { cli::check_signals("before the first run; no results were written"); });
  }
}

void PeersCommand::run(const cli::Flags& flags) {
  if (quick_ && !flags.given("--train")) runs_.train = 1280;
  if (quick_ && !flags.given("--test")) runs_.test = 512;
  if (quick_ && !flags.given("--epochs")) runs_.epochs = 1;
  cli::allow_to_finish();  // to end a run
  outputs_.open();
  const Device device = runs_.device = cli::resolve_device(device_);
  if (runs_.ranks > 1 && device != Device::cpu) {
    fail(ExitCode::usage, "--ranks {}: the rows are for --device cpu", runs_.ranks);
  }
  if (runs_.batch % runs_.ranks != 0) {
    fail(ExitCode::usage, "--batch {}: expected a multiple of --ranks {}", runs_.batch, runs_.ranks);
  }
  cli::use_threads(runs_.threads);
  if (list_) return print_list();
  if (dry_run_) return print_plan();

  Json record = report::new_record(name(), device);
  const cli::TrainingData data = cli::open_training_data(data_, {runs_.train, false}, {runs_.test, false});
  const measure::WorkFolder work;
  // Found there by its name, and so normalised as MNIST, which the peers do too.
  runs_.folder = work.path() / "mnist";
  write_samples(data, runs_.folder);
  record["data"] = report::describe_data(data);
  record["config"] = flags.config();
  ::setenv("HALFSTEP_DATA", work.path().c_str(), 1);
  if (data.synthetic) runs_.label = data.train->info().name + "  ";
  const Error failure = measure::measure_peers(runs_, record);
  record["headline"] =
      fmt::format("{} on {}, epochs {}, batch {}, adam, device {}, threads {}{}, runs {}", runs_.model,
                  report::data_line(record), runs_.epochs, runs_.batch, hs::name(device), threads(),
                  runs_.ranks > 1 ? fmt::format(" in all on {} ranks", runs_.ranks) : "", runs_.repeat);
  outputs_.finish(record);
  if (failure.code() != ExitCode::ok) throw failure;
}

}  // namespace

std::unique_ptr<cli::Command> make_peers_command() { return std::make_unique<PeersCommand>(); }

}  // namespace hs::bench::commands
