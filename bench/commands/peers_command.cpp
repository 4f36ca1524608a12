// halfstep-bench bench peers: other engines beside this one, on the same training. This writes the samples that all
// train on, and the record; measure/peers.h runs the trainings.
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

#include "bench/commands/commands.h"
#include "bench/measure/peers.h"
#include "bench/measure/work_folder.h"
#include "data/formats/idx.h"
#include "data/formats/record_file.h"
#include "data/open_dataset.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;
using measure::PeerData;

// Writes the samples in a format that all peers of the model read. Throws Error (bad_input) if the model does not take
// them.
void write_samples(const cli::TrainingData& data, const measure::PeerModel& model, const fs::path& folder) {
  const SampleInfo& images = data.train->info();
  if (images.is_text() != (model.data == PeerData::text)) {
    fail(ExitCode::bad_input, "--data {}: is {}, and {} is for the other kind", images.name,
         images.is_text() ? "a text" : "a set of images", model.name);
  }
  const bool has_digits = model.data == PeerData::digits;
  if (has_digits && (images.rows != 28 || images.columns != 28 || images.channels != 1 || images.classes > 10)) {
    fail(ExitCode::bad_input, "--data {}: images are {}x{}x{} in {} classes, and {}'s peers are for 28x28x1 in 10",
         images.name, images.rows, images.columns, images.channels, images.classes, model.name);
  }
  fs::create_directory(folder);
  if (images.is_text()) {
    fs::copy_file(find_dataset(data.choice.name).train, folder / "input.txt");
    return;
  }
  for (const SampleSource* source : {data.train.get(), data.test.get()}) {
    const bool training = source == data.train.get();
    const char* const stem = training ? "train" : "t10k";
    const auto writer = has_digits
                            ? write_idx(folder / fmt::format("{}-images-idx3-ubyte", stem),
                                        folder / fmt::format("{}-labels-idx1-ubyte", stem), source->info())
                            : write_records(folder / (training ? "train.record" : "test.record"), source->info());
    copy_samples(*source, source->info().count, *writer,
                 [](int64_t) { cli::check_signals("before the first run; no results were written"); });
  }
}

class PeersCommand : public RecordingCommand {
  measure::PeerRuns runs_;
  std::string device_ = "auto";
  cli::DataChoice data_;
  bool quick_ = false, list_ = false, dry_run_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"bench peers", "bench peers --python venv/bin/python --json peers.json --html peers.html",
                    "bench peers --dry-run", "bench peers --ranks 2 --python venv/bin/python",
                    "bench peers --python venv/bin/python --model resnet8 --data cifar10",
                    "bench peers --python venv/bin/python --model char_gpt --data tinyshakespeare"},
                   "What costs more has other defaults: resnet8 takes 10240 images, 2000 for the test, 1 epoch and a\n"
                   "batch of 128; char_gpt takes 2560 windows, 256 for the test, 1 epoch, and tinyshakespeare.\n"
                   "docs/benchmarks.md says what is measured, bench/peers/README.md how to install the engines.");
    const auto name_of = [](const measure::PeerModel& model) { return std::string(model.name); };
    flags.choice("--model", runs_.model, mapped(measure::peer_models, name_of), "Model");
    flags.data(data_);
    flags.train(runs_.train);
    flags.test(runs_.test);
    flags.epochs(runs_.epochs);
    flags.batch(runs_.batch);
    flags.record("optimizer", [] { return "adam"; });
    flags.seed(runs_.seed);
    flags.learning_rate(runs_.learning_rate);
    flags.repeat(runs_.repeat);
    flags.threads(runs_.threads);
    flags.integer("--ranks", runs_.ranks, 1, 64, "Processes of each training, which share the threads; 1: other rows");
    flags
        .list("--python", runs_.pythons, "PATH",
              "Python to look for engines in (default python3); repeatable, the first wins")
        .unrecorded();
    flags.text("--peers", runs_.scripts, "DIR", "Folder of the scripts (default: bench/peers of the sources)")
        .unrecorded();
    flags.real("--timeout", runs_.timeout, 0.1, 86400, "Seconds after which a single run is ended");
    flags.device(device_);
    flags.record("interleaved", [] { return true; });
    flags.record("warmed_up", [] { return true; });
    flags.on_off("--quick", quick_, "The smallest size that shows anything: 1280 images or 320 windows, 1 epoch");
    flags.list(list_);
    flags.on_off("--dry-run", dry_run_, "Print the commands and what is missing, and end");
    flags.quiet(runs_.quiet);
  }

  // What is not given is the model's.
  void settle_sizes(const cli::Flags& flags) {
    const measure::PeerModel& model = measure::peer_model(runs_.model);
    const auto settle = [&](const char* flag, int64_t& value, int64_t usual, int64_t quick) {
      if (!flags.given(flag)) value = quick_ ? std::min(usual, quick) : usual;
    };
    settle("--train", runs_.train, model.train, std::min<int64_t>(1280, model.train / 8));
    settle("--test", runs_.test, model.test, 512);
    settle("--epochs", runs_.epochs, model.epochs, 1);
    settle("--batch", runs_.batch, model.batch, model.batch);
    if (model.data == PeerData::text && data_.name.empty()) data_.name = "tinyshakespeare";
  }

  void print_list() const {
    std::string text = fmt::format("{:<21}  {:<12}  what it is\n", "row", "engine");
    for (const measure::PeerRow& row : measure::peer_rows(runs_)) {
      text += fmt::format("{:<21}  {:<12}  {}\n", row.name, row.engine, row.idea);
    }
    cli::write_stdout(text);
  }

  void print_plan() const {
    const std::map<std::string, measure::Engine> engines = measure::find_engines(runs_);
    const PeerData data = measure::peer_model(runs_.model).data;
    std::string missing, text = fmt::format("DIR: a temporary folder with the samples as {}\n",
                                            data == PeerData::digits   ? "IDX files, called mnist"
                                            : data == PeerData::images ? "record files"
                                                                       : "input.txt");
    int64_t rows = 0;
    for (const measure::PeerRow& row : measure::peer_rows(runs_)) {
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

  void run(const cli::Flags& flags) override {
    settle_sizes(flags);
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
    const cli::TrainingData data =
        cli::open_training_data(data_, {runs_.train, !flags.given("--train")}, {runs_.test, !flags.given("--test")});
    runs_.train = data.train->info().count;
    runs_.test = data.test->info().count;
    const measure::WorkFolder work;
    // Digits are found there by their name, and so normalised as MNIST, which the peers do too.
    runs_.folder = work.path() / "mnist";
    write_samples(data, measure::peer_model(runs_.model), runs_.folder);
    record["data"] = report::describe_data(data);
    record["config"] = flags.config();
    ::setenv("HALFSTEP_DATA", work.path().c_str(), 1);
    if (data.synthetic) runs_.label = data.train->info().name + "  ";
    const Error failure = measure::measure_peers(runs_, record);
    record["headline"] =
        fmt::format("{} on {}, epochs {}, batch {}, adam, device {}, threads {}{}, runs {}", runs_.model,
                    report::data_line(record), runs_.epochs, runs_.batch, hs::name(device), threads(),
                    runs_.ranks > 1 ? fmt::format(" in all on {} ranks", runs_.ranks) : "", runs_.repeat);
    std::vector<std::string> losses;
    for (const Json& row : record["rows"]) {
      const double loss = report::number(row, "final_loss");
      if (std::isfinite(loss)) losses.push_back(fmt::format("{} {:.4f}", report::text(row, "name"), loss));
    }
    record["remarks"] = {fmt::format("Mean training loss of the last epoch: {}.", fmt::join(losses, ", "))};
    outputs_.finish(record);
    if (failure.code() != ExitCode::ok) throw failure;
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_peers_command() { return std::make_unique<PeersCommand>(); }

}  // namespace hs::bench::commands
