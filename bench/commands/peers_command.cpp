// halfstep-bench peers: the same training by this program and by other engines, each run a process of its own, in turns
// (A B C A B C), so that what disturbs the machine for a while disturbs all of them.
#include <fmt/format.h>

#include <optional>

#include "bench/cli/clock.h"
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

struct Size {
  int64_t train, test, epochs, repeat;
};
constexpr Size default_size = {20000, 5000, 5, 3};  // the headline experiment
constexpr Size quick_size = {1280, 512, 1, 3};

// A contestant while it is measured.
struct Entry {
  const measure::Contestant* contestant;
  const measure::Engine* engine;
  std::vector<Json> runs = {};
  std::string error = "";  // the first, after which it does not run any more
  ExitCode code = ExitCode::ok;
  bool is_absent = false;  // it can not run here
};

class PeersCommand : public cli::Command {
 public:
  std::string name() const override { return "peers"; }
  std::string summary() const override { return "Measure other engines beside this one, in the same run"; }
  std::string footnote() const override;
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void take_size(const cli::Flags& flags);
  void print_list() const;
  void print_plan(const std::vector<Entry>& entries, const Json& absent) const;
  std::vector<std::string> words(const Entry& entry, const std::string& folder, int64_t pass) const;
  void run_once(Entry& entry, const std::string& folder, int64_t pass, Json& engines) const;
  void measure(std::vector<Entry>& entries, const cli::TrainingData& data, const std::string& folder,
               Json& engines) const;
  Json config() const;

  std::string model_ = "mnist_cnn", data_, device_name_ = "auto", peers_;
  std::vector<std::string> pythons_;
  Size size_ = default_size;
  int64_t batch_ = 64, seed_ = 1, threads_ = 0;
  double learning_rate_ = 1e-3, timeout_ = 900;
  Device device_ = Device::cpu;
  bool quick_ = false, list_ = false, dry_run_ = false, quiet_ = false;
  report::Outputs outputs_;
};

std::string PeersCommand::footnote() const {
  return fmt::format(
      R"(Rows of halfstep are `train` of this program, the others scripts of bench/peers (its README says what they do and how to
install their engines). All read the same samples from the same files and have the same model, batch, optimizer, seeds
and number of threads. Every run is a process of its own; run r of every row has seed + r.

Seconds are those of training: shuffling, batches, steps. Each program warms up before, compiling included, and that is
not in its seconds; neither is evaluation. The ratio is a row's seconds to those of halfstep's fastest row of the same
precision: above 1 that engine is slower, below 1 halfstep is. Its interval is that over passes.

Engines that are not installed are named with how to install them, and are no failure. A run that fails ends its row with
an error; the others go on. The exit code is then that of the first such row: its program's own if it is from 2 to 8; 1
if it took longer than --timeout; 3 if its results make no sense; 4 if it ended in any other way.

The sizes: by default {} digits, {} epochs, {} runs; --quick {}, {} and {}.

Examples:
  halfstep-bench peers
  halfstep-bench peers --python venv/bin/python --json peers.json --html peers.html
  halfstep-bench peers --dry-run
)",
      default_size.train, default_size.epochs, default_size.repeat, quick_size.train, quick_size.epochs,
      quick_size.repeat);
}

void PeersCommand::declare(cli::Flags& flags) {
  flags.choice("--model", model_, measure::peer_models, "Model");
  flags.text("--data", data_, "NAME", "mnist, fashion_mnist, synthetic, or a folder in any format; images of 28x28");
  flags.integer("--train", size_.train, 1, int64_t{1} << 24, "Training samples, the first N of the set");
  flags.integer("--test", size_.test, 1, int64_t{1} << 24, "Test samples, the first N of the set");
  flags.integer("--epochs", size_.epochs, 1, 10000, "Passes over the training samples");
  flags.integer("--repeat", size_.repeat, 1, 1000, "Runs of each row, in turns; run r has seed + r, from r = 0");
  flags.integer("--batch", batch_, 1, 1000000, "Samples per step");
  flags.real("--lr", learning_rate_, 1e-12, 1000, "Learning rate of Adam");
  flags.integer("--seed", seed_, 0, (int64_t{1} << 53) - 1000, "Seed of weights, order and dropout");
  flags.integer("--threads", threads_, 0, 1024, "CPU threads, 0: one per core");
  flags.choice("--device", device_name_, {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
  flags.list("--python", pythons_, "PATH",
             "Python to look for engines in (default python3); repeatable, the first wins");
  flags.text("--peers", peers_, "DIR", "Folder of the scripts (default: bench/peers, here or above the program)");
  flags.real("--timeout", timeout_, 0.1, 86400, "Seconds after which a single run is ended");
  outputs_.declare(flags);
  flags.on_off("--quick", quick_, "The smallest size that shows anything");
  flags.on_off("--list", list_, "Name the rows and end");
  flags.on_off("--dry-run", dry_run_, "Print the commands and what is missing, and end");
  flags.on_off("--quiet", quiet_, "No progress");
}

void PeersCommand::take_size(const cli::Flags& flags) {
  if (!quick_) return;
  if (!flags.given("--train")) size_.train = quick_size.train;
  if (!flags.given("--test")) size_.test = quick_size.test;
  if (!flags.given("--epochs")) size_.epochs = quick_size.epochs;
  if (!flags.given("--repeat")) size_.repeat = quick_size.repeat;
}

void PeersCommand::print_list() const {
  report::Table table = {{"row", "engine", "what it is"}, {}, "", 3};
  for (const measure::Contestant& each : measure::contestants(device_))
    table.lines.push_back({each.name, each.engine, each.idea});
  cli::write_stdout(to_text(table));
}

std::vector<std::string> PeersCommand::words(const Entry& entry, const std::string& folder, int64_t pass) const {
  std::vector<std::string> words = entry.engine->start;
  const auto add = [&](const char* flag, const auto& value) {
    words.emplace_back(flag);
    words.push_back(fmt::format("{}", value));
  };
  add("--data", folder);
  add("--model", model_);
  add("--train", size_.train);
  add("--test", size_.test);
  add("--epochs", size_.epochs);
  add("--batch", batch_);
  add("--lr", learning_rate_);
  add("--seed", seed_ + pass);
  add("--threads", threads());
  add("--device", hs::name(device_));
  add("--precision", entry.contestant->precision);
  words.insert(words.end(), entry.contestant->flags.begin(), entry.contestant->flags.end());
  add("--json", "-");
  return words;
}

void PeersCommand::print_plan(const std::vector<Entry>& entries, const Json& absent) const {
  std::string plan = "DIR: a temporary folder with the samples as IDX files\n";
  for (const Entry& entry : entries) {
    plan += fmt::format("{}: {}\n", entry.contestant->name, cli::command_line(words(entry, "DIR", 0)));
  }
  plan += fmt::format("{} rows, {} runs of each, in turns\n", entries.size(), size_.repeat);
  for (const std::string& sentence : report::remarks({{"absent", absent}})) plan += sentence + "\n";
  cli::write_stdout(plan);
}

void PeersCommand::run_once(Entry& entry, const std::string& folder, int64_t pass, Json& engines) const {
  try {
    const cli::Finished finished = cli::run_process(
        words(entry, folder, pass), timeout_, [] { cli::check_signals("while measuring; no results were written"); });
    measure::PeerResult result = measure::read_result(finished, timeout_, size_.train * size_.epochs);
    Json& engine = engines[entry.contestant->engine];
    if (engine.is_null()) engine = {{"version", entry.engine->version}, {"environment", result.environment}};
    entry.runs.push_back(std::move(result.row));
  } catch (const Error& error) {
    if (cli::is_stop(error.code())) throw;
    entry.error = error.what();
    entry.code = error.code();
    // "Not available here" is an answer, if it is the first one and not halfstep's.
    entry.is_absent =
        entry.code == ExitCode::device && pass == 0 && entry.contestant->engine != std::string("halfstep");
  }
}

void PeersCommand::measure(std::vector<Entry>& entries, const cli::TrainingData& data, const std::string& folder,
                           Json& engines) const {
  const std::string label = data.synthetic ? data.train->info().name + "  " : "";
  const auto start = Clock::now();
  for (int64_t pass = 0; pass < size_.repeat; ++pass) {
    for (Entry& entry : entries) {
      if (!entry.error.empty()) continue;
      run_once(entry, folder, pass, engines);
      if (quiet_) continue;
      const std::string what = entry.error.empty()
                                   ? fmt::format("{:.2f} s", report::number(entry.runs.back(), "seconds"))
                                   : fmt::format("no result: {}", entry.error);
      cli::write_stderr(fmt::format("{}pass {} of {}, {:.0f} s: {}  {}\n", label, pass + 1, size_.repeat,
                                    seconds_since(start), entry.contestant->name, what));
    }
  }
}

Json PeersCommand::config() const {
  return {{"model", model_},     {"epochs", size_.epochs},          {"batch", batch_},        {"optimizer", "adam"},
          {"seed", seed_},       {"learning_rate", learning_rate_}, {"repeat", size_.repeat}, {"threads", threads_},
          {"timeout", timeout_}, {"device", device_name_},          {"interleaved", true},    {"warmed_up", true}};
}

// Of images that the peers can read, as files that they all read.
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
  take_size(flags);
  outputs_.open();
  device_ = cli::resolve_device(device_name_);
  if (list_) return print_list();
  set_threads(static_cast<int>(threads_));
  if (threads_ > threads()) cli::notice(fmt::format("--threads {}: this build has no OpenMP and runs on 1", threads_));
  const auto engines = measure::find_engines(
      measure::find_peers(peers_), pythons_.empty() ? std::vector<std::string>{"python3"} : pythons_, !pythons_.empty(),
      timeout_, [] { cli::check_signals("before the first run"); });
  Json absent = Json::array();
  for (const auto& [engine, how] : engines) {
    if (!how.missing.empty()) absent.push_back({{"name", engine}, {"reason", how.missing}});
  }
  std::vector<Entry> entries;
  for (const measure::Contestant& each : measure::contestants(device_)) {
    if (engines.at(each.engine).missing.empty()) entries.push_back({&each, &engines.at(each.engine)});
  }
  if (dry_run_) return print_plan(entries, absent);

  Json record = report::new_record(name(), device_);
  const cli::TrainingData data = cli::open_training_data(data_, {size_.train, false}, {size_.test, false});
  const measure::WorkFolder work;
  // Called so because the name of a set decides its normalisation, and the peers have that of MNIST.
  const std::filesystem::path folder = work.path() / "mnist";
  write_samples(data, folder);
  record["data"] = report::describe_data(data);
  record["config"] = config();
  record["engines"] = Json::object();
  measure(entries, data, folder.string(), record["engines"]);
  record["rows"] = Json::array();
  for (const Entry& entry : entries) {
    if (entry.is_absent) {
      absent.push_back({{"name", entry.contestant->name}, {"reason", entry.error}});
    } else {
      record["rows"].push_back(measure::summarize(*entry.contestant, entry.runs, entry.error));
    }
  }
  measure::add_ratios(record["rows"]);
  record["absent"] = absent;
  record["headline"] =
      fmt::format("{} on {}, epochs {}, batch {}, adam, device {}, threads {}, runs {}", model_,
                  report::data_line(record), size_.epochs, batch_, hs::name(device_), threads(), size_.repeat);
  outputs_.finish(record);
  for (const Entry& entry : entries) {
    if (!entry.error.empty() && !entry.is_absent) fail(entry.code, "{}: {}", entry.contestant->name, entry.error);
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_peers_command() { return std::make_unique<PeersCommand>(); }

}  // namespace hs::bench::commands
