// halfstep-bench bench peers: the part of `./bench/run bench peers` that is not in bench/peers/run.py. This program
// parses the command line and writes the samples before the runs, and writes the record after them; run.py starts the
// runs. They communicate through a socket, this program's stdin: it sends one line of JSON, then run.py sends JSON
// until it closes its end.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "bench/cli/inputs.h"
#include "bench/cli/interrupt.h"
#include "bench/commands/commands.h"
#include "bench/measure/peers.h"
#include "bench/measure/work_folder.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "bench/report/schema.h"
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

class PeersCommand : public cli::Command {
 public:
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  void take_size(const cli::Flags& flags);
  Json plan(const std::string& folder, const std::string& label, Device device) const;

  std::string model_ = "mnist_cnn", device_ = "auto", peers_;
  cli::DataChoice data_;
  std::vector<std::string> pythons_;
  Size size_ = default_size;
  int64_t batch_ = 64, threads_ = 0, ranks_ = 1;
  uint64_t seed_ = 1;
  float learning_rate_ = 1e-3f;
  double timeout_ = 900;
  bool quick_ = false, list_ = false, dry_run_ = false, quiet_ = false, driven_ = false;
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
  flags.choice("--model", model_, measure::peer_models, "Model").record();
  flags.data(data_);
  flags.train(size_.train);
  flags.test(size_.test);
  flags.epochs(size_.epochs).record();
  flags.batch(batch_).record();
  flags.record("optimizer", [] { return "adam"; });
  flags.seed(seed_).record();
  flags.learning_rate(learning_rate_).record();
  flags.repeat(size_.repeat).record();
  flags.threads(threads_).record();
  flags.integer("--ranks", ranks_, 1, 64, "Processes of each training, which share the threads; 1: other rows")
      .record();
  flags.list("--python", pythons_, "PATH",
             "Python to look for engines in (default python3); repeatable, the first wins");
  flags.text("--peers", peers_, "DIR", "Folder of the scripts (default: bench/peers of the sources)");
  flags.real("--timeout", timeout_, 0.1, 86400, "Seconds after which a single run is ended").record();
  flags.device(device_).record();
  flags.record("interleaved", [] { return true; });
  flags.record("warmed_up", [] { return true; });
  outputs_.declare(flags);
  flags.on_off("--quick", quick_,
               fmt::format("The smallest size that shows anything: {} digits, {} epochs, {} runs", quick_size.train,
                           quick_size.epochs, quick_size.repeat));
  flags.list(list_);
  flags.on_off("--dry-run", dry_run_, "Print the commands and what is missing, and end");
  flags.quiet(quiet_);
  flags.on_off("--driven", driven_, "Given by bench/peers/run.py, with a socket as stdin");
}

void PeersCommand::take_size(const cli::Flags& flags) {
  if (!quick_) return;
  if (!flags.given("--train")) size_.train = quick_size.train;
  if (!flags.given("--test")) size_.test = quick_size.test;
  if (!flags.given("--epochs")) size_.epochs = quick_size.epochs;
  if (!flags.given("--repeat")) size_.repeat = quick_size.repeat;
}

// The plan that run.py needs. "training": flags that halfstep and the peers share.
Json PeersCommand::plan(const std::string& folder, const std::string& label, Device device) const {
  const Json training = {{"--data", folder},
                         {"--model", model_},
                         {"--train", size_.train},
                         {"--test", size_.test},
                         {"--epochs", size_.epochs},
                         {"--batch", batch_},
                         {"--lr", cli::as_written(learning_rate_)},
                         {"--seed", seed_},
                         {"--threads", threads()},
                         {"--device", hs::name(device)}};
  return {{"version", cli::build_info.version},
          {"device", hs::name(device)},
          {"training", training},
          {"samples", size_.train * size_.epochs},
          {"seed", seed_},
          {"repeat", size_.repeat},
          {"ranks", ranks_},
          {"pythons", pythons_},
          {"peers", peers_},
          {"timeout", timeout_},
          {"label", label},
          {"quiet", quiet_},
          {"list", list_},
          {"dry_run", dry_run_}};
}

// Everything that run.py sends.
std::string receive() {
  std::string text;
  std::array<char, 65536> buffer;
  pollfd socket = {STDIN_FILENO, POLLIN, 0};
  for (;;) {
    cli::check_signals("while measuring; no results were written");
    if (::poll(&socket, 1, 100) <= 0) continue;
    const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
}

ExitCode code_of(const Json& failed) {
  const Json& code = report::member(failed, "code");
  return code.is_null() ? ExitCode::io : ExitCode{code.get<int>()};
}

// member: what it sends if all goes well
Json ask_run_py(const Json& plan, const char* member) {
  const std::string line = plan.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  cli::write_all(STDIN_FILENO, line);
  const std::string reply = receive();
  if (reply.empty()) fail(ExitCode::io, "bench/peers/run.py ended without results; no results were written");
  const std::string source = "the results of bench/peers/run.py";
  const Json results = parse(reply, source);
  static const Json shape = Json::parse(R"({
    "error": "string", "code": "number", "text": "string", "engines": {}, "absent": [{}],
    "rows": [{
      "name!": "string", "engine!": "string", "precision!": "string", "flags!": ["string"], "runs!": [{"runs": [{}]}],
      "error": "string", "code": "number"
    }]
  })");
  report::check_shape(results, shape, source);
  if (results.contains("error")) fail(code_of(results), "{}", report::text(results, "error"));
  if (!results.contains(member)) fail(ExitCode::bad_input, "{}: {} is missing", source, member);
  return results;
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
  if (!driven_)
    fail(ExitCode::usage, "bench peers: needs its runner; use ./bench/run bench peers, with the same flags");
  take_size(flags);
  outputs_.open();
  const Device device = cli::resolve_device(device_);
  if (ranks_ > 1 && device != Device::cpu) fail(ExitCode::usage, "--ranks {}: the rows are for --device cpu", ranks_);
  if (batch_ % ranks_ != 0) fail(ExitCode::usage, "--batch {}: expected a multiple of --ranks {}", batch_, ranks_);
  cli::use_threads(threads_);
  if (list_ || dry_run_) {
    const Json results = ask_run_py(plan("DIR", "", device), "text");
    std::string text = report::text(results, "text");
    for (const std::string& sentence : report::remarks(results)) text += sentence + "\n";
    return cli::write_stdout(text);
  }

  Json record = report::new_record(name(), device);
  const cli::TrainingData data = cli::open_training_data(data_, {size_.train, false}, {size_.test, false});
  const measure::WorkFolder work;
  // Found there by its name, and so normalised as MNIST, which the peers do too.
  const std::filesystem::path folder = work.path() / "mnist";
  write_samples(data, folder);
  record["data"] = report::describe_data(data);
  record["config"] = flags.config();
  const Json results =
      ask_run_py(plan(folder.string(), data.synthetic ? data.train->info().name + "  " : "", device), "rows");
  record["engines"] = report::part(results, "engines");
  record["rows"] = measure::peer_rows(report::objects(results, "rows"));
  record["absent"] = report::objects(results, "absent");
  record["headline"] = fmt::format("{} on {}, epochs {}, batch {}, adam, device {}, threads {}{}, runs {}", model_,
                                   report::data_line(record), size_.epochs, batch_, hs::name(device), threads(),
                                   ranks_ > 1 ? fmt::format(" in all on {} ranks", ranks_) : "", size_.repeat);
  outputs_.finish(record);
  for (const Json& row : report::objects(results, "rows")) {
    if (row.contains("error")) fail(code_of(row), "{}: {}", report::text(row, "name"), report::text(row, "error"));
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_peers_command() { return std::make_unique<PeersCommand>(); }

}  // namespace hs::bench::commands
