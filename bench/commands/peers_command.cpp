// halfstep-bench bench peers: other engines (peers) beside this one, on the same training, each run a process of its
// own, in turns. Writes the samples that all train on, and the record: its rows are those of chapter 12.
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "bench/cli/child.h"
#include "bench/cli/environment.h"
#include "bench/commands/commands.h"
#include "bench/measure/row.h"
#include "bench/measure/work_folder.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// The kinds of samples that the peers read. Digits: MNIST's files, the only ones that JAX's script reads.
enum class PeerData { digits, images, text };

// A model that the peers' scripts implement too. The defaults are the headline experiment of digits; of the others,
// which cost more, what takes minutes on two cores.
struct PeerModel {
  const char* name;
  PeerData data = PeerData::digits;
  int64_t train = 20000, test = 5000, epochs = 5, batch = 64;
};
const PeerModel peer_models[] = {{"mnist_cnn"},
                                 {"mnist_cnn_large"},
                                 {"mlp"},
                                 {"resnet8", PeerData::images, 10240, 2000, 1, 128},
                                 {"char_gpt", PeerData::text, 2560, 256, 1, 64}};

struct PeerRow {
  std::string group;  // the device; or "ranks", or "text on DEVICE" of a model of a text alone
  const char* name;
  const char* engine;  // halfstep, halfstep_mpi (several ranks), or that of a script
  const char* precision;
  std::string flags;

  Words words() const {
    std::istringstream in(flags);
    return {std::istream_iterator<std::string>(in), {}};
  }
  bool is_ours() const { return std::string_view(engine).starts_with("halfstep"); }
  bool has(std::string_view flag) const { return flags.find(flag) != std::string::npos; }
};
const PeerRow all_rows[] = {
    {"cpu", "halfstep f32", "halfstep", "f32", ""},
    {"cpu", "halfstep bf16", "halfstep", "bf16", ""},
    {"cpu", "torch f32", "torch", "f32", ""},
    {"cpu", "torch f32 NHWC", "torch", "f32", "--channels-last"},
    {"cpu", "torch f32 compiled", "torch", "f32", "--channels-last --mode compile"},
    {"cpu", "torch f32 DataLoader", "torch", "f32", "--channels-last --loading dataloader"},
    {"cpu", "torch bf16 NHWC", "torch", "bf16", "--channels-last"},
    {"cpu", "jax f32", "jax", "f32", ""},
    {"cpu", "jax bf16", "jax", "bf16", ""},
    {"cuda", "halfstep f32", "halfstep", "f32", ""},
    {"cuda", "halfstep tf32", "halfstep", "tf32", ""},
    {"cuda", "halfstep bf16", "halfstep", "bf16", ""},
    {"cuda", "torch f32", "torch", "f32", ""},
    {"cuda", "torch tf32 NHWC", "torch", "tf32", "--channels-last"},
    {"cuda", "torch bf16 NHWC", "torch", "bf16", "--channels-last"},
    {"cuda", "torch bf16 compiled", "torch", "bf16", "--channels-last --mode compile"},
    {"cuda", "torch f32 graph", "torch", "f32", "--mode graph"},
    {"cuda", "torch bf16 graph", "torch", "bf16", "--channels-last --mode graph"},
    {"cuda", "torch bf16 DataLoader", "torch", "bf16", "--channels-last --loading dataloader"},
    {"cuda", "jax f32", "jax", "f32", ""},
    {"cuda", "jax tf32", "jax", "tf32", ""},
    {"cuda", "jax bf16", "jax", "bf16", ""},
    {"ranks", "halfstep f32", "halfstep", "f32", ""},
    {"ranks", "halfstep f32 ranks", "halfstep_mpi", "f32", ""},
    {"ranks", "torch DDP f32", "torch", "f32", ""},
    {"ranks", "torch DDP f32 NHWC", "torch", "f32", "--channels-last"},
    {"ranks", "torch DDP f32 small", "torch", "f32", "--bucket-cap-mb 0.25"},
    // A text has no channels, so that its rows are those of all models and these.
    {"text on cpu", "torch f32 compiled", "torch", "f32", "--mode compile"},
    {"text on cpu", "torch bf16", "torch", "bf16", ""},
    {"text on cuda", "torch tf32", "torch", "tf32", ""},
    {"text on cuda", "torch bf16", "torch", "bf16", ""},
    {"text on cuda", "torch bf16 compiled", "torch", "bf16", "--mode compile"},
    {"text on cuda", "torch bf16 graph", "torch", "bf16", "--mode graph"},
};

struct Engine {
  std::vector<std::string> start;  // the first words of its command
  std::string version;
  std::string missing;  // why it is not there
};

const std::map<std::string, std::string> peer_scripts = {{"jax", "jax_mnist.py"}, {"torch", "torch_models.py"}};

bool has_scripts(const fs::path& folder) {
  return std::ranges::any_of(peer_scripts,
                             [&](const auto& script) { return fs::is_regular_file(folder / script.second); });
}

// Those of the sources, if this program is in a build folder of them.
fs::path usual_scripts(const fs::path& program) {
  for (fs::path folder = program.parent_path(); folder != folder.root_path(); folder = folder.parent_path()) {
    if (has_scripts(folder / "bench/peers")) return folder / "bench/peers";
  }
  return {};
}

// Writes the samples in a format that all peers of the model read. Throws Error (bad_input) if the model does not take
// them.
void write_samples(const cli::TrainingData& data, const PeerModel& model, const fs::path& folder) {
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
    const auto writer = measure::write_split({has_digits ? "idx" : "record"}, folder,
                                             source == data.train.get() ? Part::train : Part::test, source->info());
    copy_samples(*source, source->info().count, *writer,
                 [](int64_t) { cli::check_signals("before the first run; no results were written"); });
  }
}

Json summarize_peer(const PeerRow& measured, const Json& runs) {
  const Json merged = measure::merge_rows(runs);
  Json row = {{"name", measured.name},
              {"group", measured.is_ours() ? "halfstep" : "peer"},
              {"engine", measured.engine},
              {"precision", measured.precision},
              {"flags", measured.words()}};
  for (const char* name : {"seconds", "seconds_low", "seconds_high", "seconds_all", "samples_per_second",
                           "warmup_seconds", "test_accuracy", "test_accuracy_all", "final_loss", "peak_bytes"}) {
    row[name] = report::member(merged, name);
  }
  for (const char* name : {"epochs", "runs"}) {
    if (measured.is_ours()) row[name] = report::member(merged, name);
  }
  return row;
}

// A peer's row is compared with halfstep's fastest row of its precision: it gets the "ratio" of the medians of seconds
// with its interval, "compared_with", and a verdict.
void add_ratios(Json& rows) {
  const auto is_peer = [](const Json& row) { return report::text(row, "group") == "peer"; };
  const auto verdicts = static_cast<size_t>(std::ranges::count_if(rows, is_peer));
  for (Json& row : rows) {
    if (!is_peer(row) || row.contains("error")) continue;
    const Json* fastest = nullptr;
    for (const Json& other : rows) {
      if (is_peer(other) || other.contains("error") || other["precision"] != row["precision"]) continue;
      if (!fastest || report::number(other, "seconds") < report::number(*fastest, "seconds")) fastest = &other;
    }
    if (!fastest) continue;
    const std::vector<double> theirs = report::numbers(row, "seconds_all"),
                              base = report::numbers(*fastest, "seconds_all");
    row.update(measure::speed_up(theirs, base, verdicts).to_json());
    row["compared_with"] = report::text(*fastest, "name");
    row["verdict"] = measure::speed_up(base, theirs, verdicts).verdict;
  }
}

class PeersCommand : public RecordingCommand {
  std::string model_ = "mnist_cnn", scripts_, device_name_ = "auto";
  std::vector<std::string> pythons_;
  cli::DataChoice data_;
  int64_t train_ = 20000, test_ = 5000, epochs_ = 5, repeat_ = 5, batch_ = 64, threads_ = 0, ranks_ = 1;
  uint64_t seed_ = 1;
  float learning_rate_ = 1e-3f;
  double timeout_ = 900;  // seconds, of a run
  bool quick_ = false, quiet_ = false;
  Device device_ = Device::cpu;
  std::string folder_;  // with the samples
  std::string label_;   // of a line of progress

  void declare(cli::Flags& flags) override {
    flags.examples({"bench peers", "bench peers --python venv/bin/python --json peers.json --html peers.html",
                    "bench peers --ranks 2 --python venv/bin/python",
                    "bench peers --python venv/bin/python --model resnet8 --data cifar10",
                    "bench peers --python venv/bin/python --model char_gpt --data tinyshakespeare"},
                   "What costs more has other defaults: resnet8 takes 10240 images, 2000 for the test, 1 epoch and a\n"
                   "batch of 128; char_gpt takes 2560 windows, 256 for the test, 1 epoch, and tinyshakespeare.\n"
                   "docs/chapters/12_benchmarks.md says what is measured, bench/peers/README.md how to install.");
    const auto name_of = [](const PeerModel& model) { return std::string(model.name); };
    flags.choice("--model", common(Group::model), model_, mapped(peer_models, name_of), "Model");
    flags.data(data_);
    flags.train(train_);
    flags.test(test_);
    flags.epochs(epochs_);
    flags.batch(batch_);
    flags.record("optimizer", [] { return "adam"; });
    flags.seed(seed_);
    flags.learning_rate(learning_rate_);
    flags.repeat(repeat_);
    flags.threads(threads_);
    flags.integer("--ranks", own(), ranks_, 1, 64,
                  "Processes of each training, which share the threads; 1: other rows");
    flags.list("--python", own().unrecorded(), pythons_, "PATH",
               "Python to look for engines in (default python3); repeatable, the first wins");
    flags.text("--peers", own().unrecorded(), scripts_, "DIR",
               "Folder of the scripts (default: bench/peers of the sources)");
    flags.real("--timeout", own(), timeout_, 0.1, 86400, "Seconds after which a single run is ended");
    flags.device(device_name_);
    flags.record("interleaved", [] { return true; });
    flags.record("warmed_up", [] { return true; });
    flags.on_off("--quick", own(), quick_,
                 "The smallest size that shows anything: 1280 images or 320 windows, 1 epoch");
    flags.quiet(quiet_);
  }

  const PeerModel& model() const {
    return *std::ranges::find(peer_models, model_, [](const PeerModel& each) { return std::string(each.name); });
  }

  // What is not given is the model's.
  void choose_sizes(const cli::Flags& flags) {
    const auto choose = [&](const char* flag, int64_t& value, int64_t usual, int64_t quick) {
      if (!flags.given(flag)) value = quick_ ? std::min(usual, quick) : usual;
    };
    choose("--train", train_, model().train, std::min<int64_t>(1280, model().train / 8));
    choose("--test", test_, model().test, 512);
    choose("--epochs", epochs_, model().epochs, 1);
    choose("--batch", batch_, model().batch, model().batch);
    if (model().data == PeerData::text && data_.name.empty()) data_.name = "tinyshakespeare";
  }

  std::vector<PeerRow> rows() const {
    const bool has_digits = model().data == PeerData::digits, is_text = model().data == PeerData::text;
    const std::string device = hs::name(device_);
    std::vector<PeerRow> rows;
    for (const PeerRow& row : all_rows) {
      const bool is_of_digits =
          row.engine == std::string_view("jax") || row.has("dataloader") || (is_text && row.has("--channels-last"));
      const bool is_here = row.group == (ranks_ > 1 ? "ranks" : device);
      const bool is_of_text = is_text && ranks_ == 1 && row.group == "text on " + device;
      if (is_of_text || (is_here && (has_digits || !is_of_digits))) rows.push_back(row);
    }
    return rows;
  }

  // By `--version`. `how`: to install what it starts with.
  Engine ask_version(const Words& start, const char* how) const {
    Words words = start;
    words.emplace_back("--version");
    cli::ChildEnd answer;
    try {
      answer = cli::run_program(words, timeout_, while_measuring);
    } catch (const Error& error) {
      if (cli::is_stop(error.code())) throw;
      if (!pythons_.empty() && start[0] != "mpirun") fail(error.code(), "--python {}", error.what());
      return {start, "", fmt::format("{}; {}", error.what(), how)};
    }
    const std::string program = fmt::format("{}", fmt::join(words, " "));
    if (answer.late) return {start, "", program + " did not end in time (--timeout)"};
    if (answer.code == static_cast<int>(ExitCode::device)) return {start, "", answer.last_words};
    if (answer.code != 0 || answer.signal != 0) return {start, "", program + ": " + answer.text()};
    return {start, answer.out.substr(0, answer.out.find('\n')), ""};
  }

  // Asks each Python for each engine; the first that has it counts. Throws Error (io): no such Python, no scripts.
  std::map<std::string, Engine> find_engines() const {
    const fs::path self = fs::read_symlink("/proc/self/exe");
    const fs::path folder = scripts_.empty() ? usual_scripts(self) : fs::path(scripts_);
    if (!scripts_.empty() && !has_scripts(folder)) {
      fail(ExitCode::io, "--peers {}: has none of the peers' scripts, jax_mnist.py, torch_models.py", scripts_);
    }
    const Engine ours = {{self, "train", "--quiet"}, fmt::format("halfstep {}", cli::build_info.version), ""};
    std::map<std::string, Engine> engines;
    for (const PeerRow& row : rows()) engines.emplace(row.engine, ours);
    for (const auto& [name, script] : peer_scripts) {
      if (!engines.contains(name)) continue;
      Engine& engine = engines[name] = {{}, "", fmt::format("--peers has no {}", script)};
      const bool is_there = fs::is_regular_file(folder / script);
      for (const std::string& python : pythons_.empty() ? Words{"python3"} : pythons_) {
        if (is_there && !engine.missing.empty())
          engine = ask_version({python, folder / script}, "install Python 3, or give --python PATH");
      }
    }
    if (!engines.contains("halfstep_mpi")) return engines;
    // Without the binding that it does by default, to one core for each of up to two ranks.
    Engine& mpi = engines["halfstep_mpi"] = ask_version({"mpirun", "-n", std::to_string(ranks_), "--bind-to", "none"},
                                                        "on Debian: apt install openmpi-bin");
    mpi.start.insert(mpi.start.end(), ours.start.begin(), ours.start.end());
    mpi.version = fmt::format("{} on {} ranks", ours.version, ranks_);
    return engines;
  }

  Words command(const Engine& engine, const PeerRow& row, uint64_t seed) const {
    const bool has_ranks = ranks_ > 1 && row.engine != std::string_view("halfstep");
    const bool is_found = row.is_ours() && model().data == PeerData::digits;  // as mnist, in HALFSTEP_DATA
    Json training = {{"--data", is_found ? "mnist" : folder_},
                     {"--model", model_},
                     {"--train", train_},
                     {"--test", test_},
                     {"--epochs", epochs_},
                     {"--batch", batch_},
                     {"--lr", cli::as_written(learning_rate_)},
                     {"--seed", seed},
                     {"--threads", has_ranks ? std::max<int64_t>(1, threads() / ranks_) : threads()},
                     {"--device", hs::name(device_)}};
    if (has_ranks && row.is_ours()) {  // a batch of all ranks is one micro-batch on each
      training["--batch"] = batch_ / ranks_;
      training["--accumulate"] = ranks_;
    } else if (has_ranks) {
      training["--ranks"] = ranks_;
    }
    training["--precision"] = row.precision;
    Words words = engine.start;
    for (const auto& [flag, value] : training.items()) {
      words.insert(words.end(), {flag, value.is_string() ? value.get<std::string>() : value.dump()});
    }
    for (const std::string& word : row.words()) words.push_back(word);
    words.insert(words.end(), {"--json", "-"});
    return words;
  }

  // The row and the environment in the record that one run writes, checked.
  std::pair<Json, Json> measure_one(const Words& words) const {
    const cli::ChildEnd run = cli::run_program(words, timeout_, while_measuring);
    if (run.late) fail(ExitCode::missed, "did not end within {} s (--timeout)", timeout_);
    if (run.code != 0 || run.signal != 0) {
      const auto code = static_cast<ExitCode>(run.code);
      fail(code >= ExitCode::usage && code <= ExitCode::out_of_memory ? code : ExitCode::io, "{}", run.text());
    }
    const char* const source = "its record";
    const Json record = parse(run.out, source);
    report::check_record(record, source);
    const Json& rows = report::objects(record, "rows");
    if (rows.size() != 1) fail(ExitCode::bad_input, "{} has {} rows, expected 1", source, rows.size());
    const std::vector<double> times = report::numbers(rows[0], "seconds_all");
    if (times.size() != 1 || !(times[0] > 0)) {
      fail(ExitCode::bad_input, "{} has {} times above 0, expected 1", source, times.size());
    }
    // Not every record has the requested settings, but each has the amount of work.
    const double trained = report::number(rows[0], "samples_per_second") * times[0],
                 expected = static_cast<double>(train_ * epochs_);
    if (!(std::abs(trained - expected) <= 1e-6 * expected)) {
      fail(ExitCode::bad_input, "trained on {:.0f} samples by its record, expected {}", trained, train_ * epochs_);
    }
    return {rows[0], report::member(record, "environment")};
  }

  // Measures all rows and adds "engines", "rows" and "absent" to the record. A row whose run fails has an "error" and
  // does not run again; returns the first failure, or `ok`.
  Error measure(Json& record) const {
    const std::map<std::string, Engine> engines = find_engines();
    Json used = Json::object(), rows = Json::array(), absent = Json::array();
    for (const auto& [name, engine] : engines) {
      if (!engine.missing.empty()) absent.push_back({{"name", name}, {"reason", engine.missing}});
    }
    struct Measured {
      PeerRow row;
      Json runs = Json::array();
      std::optional<Error> error = {};
    };
    std::vector<Measured> all;
    for (const PeerRow& row : this->rows()) {
      if (engines.at(row.engine).missing.empty()) all.push_back({row});
    }
    const auto start = Clock::now();
    const auto run = [&](size_t i, int64_t turn) {
      auto& [row, runs, error] = all[i];
      const Engine& engine = engines.at(row.engine);
      std::string outcome;
      try {
        const auto [result, environment] = measure_one(command(engine, row, seed_ + static_cast<uint64_t>(turn)));
        if (!used.contains(row.engine)) used[row.engine] = {{"version", engine.version}, {"environment", environment}};
        outcome = fmt::format("{:.2f} s", report::number(result, "seconds"));
        runs.push_back(result);
      } catch (const Error& failure) {
        if (cli::is_stop(failure.code())) throw;
        error = failure;
        outcome = fmt::format("no result: {}", failure.what());
      }
      if (!quiet_) {
        cli::write_stderr(fmt::format("{}pass {} of {}, {:.0f} s: {}  {}\n", label_, turn + 1, repeat_,
                                      seconds_since(start), row.name, outcome));
      }
      return !error;
    };
    measure::in_turns(all.size(), repeat_, run, [](int64_t) {});
    Error first(ExitCode::ok, "");
    for (const auto& [row, runs, error] : all) {
      // "Not available here" is a valid result if it is the first run's and not halfstep's.
      if (error && error->code() == ExitCode::device && runs.empty() && !row.is_ours()) {
        absent.push_back({{"name", row.name}, {"reason", error->what()}});
        continue;
      }
      rows.push_back(summarize_peer(row, runs));
      if (!error) continue;
      rows.back()["error"] = error->what();
      if (first.code() == ExitCode::ok) first = Error(error->code(), fmt::format("{}: {}", row.name, error->what()));
    }
    add_ratios(rows);
    record.update({{"engines", used}, {"rows", rows}, {"absent", absent}});
    return first;
  }

  void run(const cli::Flags& flags) override {
    choose_sizes(flags);
    cli::allow_to_finish();  // to end a run
    outputs_.open();
    device_ = cli::resolve_device(device_name_);
    if (ranks_ > 1 && device_ != Device::cpu)
      fail(ExitCode::usage, "--ranks {}: the rows are for --device cpu", ranks_);
    if (batch_ % ranks_ != 0) fail(ExitCode::usage, "--batch {}: expected a multiple of --ranks {}", batch_, ranks_);
    cli::use_threads(threads_);

    Json record = report::new_record(name(), device_);
    const cli::TrainingData data =
        cli::open_training_data(data_, {train_, !flags.given("--train")}, {test_, !flags.given("--test")});
    train_ = data.train->info().count;
    test_ = data.test->info().count;
    const measure::WorkFolder work;
    // Digits are found there by their name, and so normalised as MNIST, which the peers do too.
    folder_ = work.path() / "mnist";
    write_samples(data, model(), folder_);
    record["data"] = report::describe_data(data);
    record["config"] = flags.config();
    ::setenv("HALFSTEP_DATA", work.path().c_str(), 1);
    if (data.synthetic) label_ = data.train->info().name + "  ";
    const Error failure = measure(record);
    record["headline"] = fmt::format("{} on {}, epochs {}, batch {}, adam, device {}, threads {}{}, runs {}", model_,
                                     report::data_line(record), epochs_, batch_, hs::name(device_), threads(),
                                     ranks_ > 1 ? fmt::format(" in all on {} ranks", ranks_) : "", repeat_);
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
