#include "bench/measure/peers.h"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>

#include "bench/cli/child.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "bench/measure/row.h"
#include "bench/report/record.h"
#include "engine/check.h"
#include "engine/parallel.h"

namespace hs::bench::measure {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::map<std::string, std::string> peer_scripts = {{"jax", "jax_mnist.py"}, {"torch", "torch_models.py"}};
constexpr const char* while_measuring = "while measuring; no results were written";

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

// By `--version`. `how`: to install what it starts with.
Engine ask_version(const Words& start, const char* how, const PeerRuns& runs) {
  Words words = start;
  words.emplace_back("--version");
  cli::ChildEnd answer;
  try {
    answer = cli::run_program(words, runs.timeout, while_measuring);
  } catch (const Error& error) {
    if (cli::is_stop(error.code())) throw;
    if (!runs.pythons.empty() && start[0] != "mpirun") fail(error.code(), "--python {}", error.what());
    return {start, "", fmt::format("{}; {}", error.what(), how)};
  }
  const std::string program = fmt::format("{}", fmt::join(words, " "));
  if (answer.late) return {start, "", program + " did not end in time (--timeout)"};
  if (answer.code == static_cast<int>(ExitCode::device)) return {start, "", answer.last_words};
  if (answer.code != 0 || answer.signal != 0) {
    return {start, "", program + ": " + answer.text()};
  }
  return {start, answer.out.substr(0, answer.out.find('\n')), ""};
}

// The row and the environment in the record that one run writes, checked.
std::pair<Json, Json> measure_peer(const Words& words, const PeerRuns& runs) {
  const cli::ChildEnd run = cli::run_program(words, runs.timeout, while_measuring);
  if (run.late) fail(ExitCode::missed, "did not end within {} s (--timeout)", runs.timeout);
  if (run.code != 0 || run.signal != 0) {
    const auto code = static_cast<ExitCode>(run.code);
    fail(code >= ExitCode::usage && code <= ExitCode::out_of_memory ? code : ExitCode::io, "{}", run.text());
  }
  const char* const source = "its record";
  const Json record = parse(run.out, source);
  report::check_record(record, source);
  const Json& rows = report::objects(record, "rows");
  if (rows.size() != 1) fail(ExitCode::bad_input, "{} has {} rows, expected 1", source, rows.size());
  const Json& row = rows[0];
  const std::vector<double> times = report::numbers(row, "seconds_all");
  if (times.size() != 1 || !(times[0] > 0)) {
    fail(ExitCode::bad_input, "{} has {} times above 0, expected 1", source, times.size());
  }
  // Not every record has the requested settings, but each has the amount of work.
  const double trained = report::number(row, "samples_per_second") * times[0],
               expected = static_cast<double>(runs.train * runs.epochs);
  if (!(std::abs(trained - expected) <= 1e-6 * expected)) {
    fail(ExitCode::bad_input, "trained on {:.0f} samples by its record, expected {}", trained,
         runs.train * runs.epochs);
  }
  return {row, report::member(record, "environment")};
}

bool is_halfstep(const PeerRow& row) { return std::string_view(row.engine).starts_with("halfstep"); }

Json summarize_peer(const PeerRow& measured, const Json& runs) {
  const bool is_ours = is_halfstep(measured);
  Json merged = {{"seconds_all", Json::array()}, {"test_accuracy_all", Json::array()}};
  if (!runs.empty()) merged = merge_rows(runs);
  Json row = {{"name", measured.name},
              {"group", is_ours ? "halfstep" : "peer"},
              {"engine", measured.engine},
              {"precision", measured.precision},
              {"flags", measured.flags}};
  for (const char* name : {"seconds", "seconds_low", "seconds_high", "seconds_all", "samples_per_second",
                           "warmup_seconds", "test_accuracy", "test_accuracy_all", "final_loss", "peak_bytes"}) {
    row[name] = report::member(merged, name);
  }
  for (const char* name : {"epochs", "runs"}) {
    if (is_ours) row[name] = merged.value(name, Json::array());
  }
  return row;
}

void add_ratios(Json& rows) {
  for (Json& row : rows) {
    if (report::text(row, "group") != "peer" || row.contains("error")) continue;
    const Json* fastest = nullptr;
    for (const Json& other : rows) {
      if (report::text(other, "group") != "halfstep" || other.contains("error")) continue;
      if (other["precision"] != row["precision"]) continue;
      if (!fastest || report::number(other, "seconds") < report::number(*fastest, "seconds")) fastest = &other;
    }
    if (!fastest) continue;
    const std::vector<double> theirs = report::numbers(row, "seconds_all"),
                              base = report::numbers(*fastest, "seconds_all");
    const SpeedUp halfstep = speed_up(theirs, base);
    row.update(halfstep.to_json());
    row["compared_with"] = report::text(*fastest, "name");
    row["verdict"] = verdict(halfstep.ratio, halfstep.interval, theirs.size(), "slower", "faster");
  }
}

}  // namespace

const PeerModel& peer_model(const std::string& name) {
  return *std::ranges::find(peer_models, name, [](const PeerModel& model) { return std::string(model.name); });
}

std::vector<PeerRow> peer_rows(const PeerRuns& runs) {
  static const Words nhwc = {"--channels-last"}, graph = {"--mode", "graph"},
                     compiled = {"--channels-last", "--mode", "compile"},
                     dataloader = {"--channels-last", "--loading", "dataloader"},
                     nhwc_graph = {"--channels-last", "--mode", "graph"}, small = {"--bucket-cap-mb", "0.25"},
                     only_compiled = {"--mode", "compile"};
  static const std::vector<PeerRow> cpu = {
      {"halfstep f32", "halfstep", "f32", {}, "`train` of this program"},
      {"halfstep bf16", "halfstep", "bf16", {}, "the same, products and convolutions in bf16"},
      {"torch f32", "torch", "f32", {}, "PyTorch as it comes, all data in memory"},
      {"torch f32 NHWC", "torch", "f32", nhwc, "the same, convolutions in NHWC"},
      {"torch f32 compiled", "torch", "f32", compiled, "and forward, loss and backward by torch.compile"},
      {"torch f32 DataLoader", "torch", "f32", dataloader, "not compiled, batches by a DataLoader with two processes"},
      {"torch bf16 NHWC", "torch", "bf16", nhwc, "autocast to bf16"},
      {"jax f32", "jax", "f32", {}, "the whole step compiled by XLA, all data in memory"},
      {"jax bf16", "jax", "bf16", {}, "the same, products and convolutions in bf16"},
  };
  static const std::vector<PeerRow> cuda = {
      {"halfstep f32", "halfstep", "f32", {}, "`train` of this program, the step as a CUDA graph"},
      {"halfstep tf32", "halfstep", "tf32", {}, "f32 on tensor cores"},
      {"halfstep bf16", "halfstep", "bf16", {}, "products and convolutions in bf16"},
      {"torch f32", "torch", "f32", {}, "PyTorch as it comes, all data on the device"},
      {"torch tf32 NHWC", "torch", "tf32", nhwc, "f32 on tensor cores, convolutions in NHWC"},
      {"torch bf16 NHWC", "torch", "bf16", nhwc, "autocast to bf16"},
      {"torch bf16 compiled", "torch", "bf16", compiled, "and forward, loss and backward by torch.compile"},
      {"torch f32 graph", "torch", "f32", graph, "the whole step as a CUDA graph"},
      {"torch bf16 graph", "torch", "bf16", nhwc_graph, "the same in bf16, NHWC"},
      {"torch bf16 DataLoader", "torch", "bf16", dataloader, "batches by a DataLoader with two processes"},
      {"jax f32", "jax", "f32", {}, "the whole step compiled by XLA, all data on the device"},
      {"jax tf32", "jax", "tf32", {}, "f32 on tensor cores"},
      {"jax bf16", "jax", "bf16", {}, "products and convolutions in bf16"},
  };
  static const std::vector<PeerRow> on_ranks = {
      {"halfstep f32", "halfstep", "f32", {}, "`train` of this program, one process with all threads"},
      {"halfstep f32 ranks", "halfstep_mpi", "f32", {}, "mpirun of it: a share of each batch on every rank"},
      {"torch DDP f32", "torch", "f32", {}, "DistributedDataParallel over gloo, bucket_cap_mb 25, its default"},
      {"torch DDP f32 NHWC", "torch", "f32", nhwc, "the same, convolutions in NHWC"},
      {"torch DDP f32 small", "torch", "f32", small, "with bucket_cap_mb 0.25"},
  };
  // A text has no channels, so that its rows are those of all models and these.
  static const std::vector<PeerRow> text_on_cpu = {
      {"torch f32 compiled", "torch", "f32", only_compiled, "forward, loss and backward by torch.compile"},
      {"torch bf16", "torch", "bf16", {}, "autocast to bf16, not compiled"},
  };
  static const std::vector<PeerRow> text_on_cuda = {
      {"torch tf32", "torch", "tf32", {}, "f32 on tensor cores"},
      {"torch bf16", "torch", "bf16", {}, "autocast to bf16"},
      {"torch bf16 compiled", "torch", "bf16", only_compiled, "and forward, loss and backward by torch.compile"},
      {"torch bf16 graph", "torch", "bf16", graph, "the whole step as a CUDA graph"},
  };
  const bool is_cuda = runs.device == Device::cuda;
  std::vector<PeerRow> rows = runs.ranks > 1 ? on_ranks : is_cuda ? cuda : cpu;
  const PeerData data = peer_model(runs.model).data;
  if (data == PeerData::digits) return rows;
  std::erase_if(rows, [&](const PeerRow& row) {
    return row.engine == std::string_view("jax") || row.flags == dataloader ||
           (data == PeerData::text && std::ranges::find(row.flags, nhwc[0]) != row.flags.end());
  });
  if (data == PeerData::text && runs.ranks == 1) {
    const std::vector<PeerRow>& more = is_cuda ? text_on_cuda : text_on_cpu;
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

std::map<std::string, Engine> find_engines(const PeerRuns& runs) {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const fs::path folder = runs.scripts.empty() ? usual_scripts(self) : fs::path(runs.scripts);
  if (!runs.scripts.empty() && !has_scripts(folder)) {
    fail(ExitCode::io, "--peers {}: has none of the peers' scripts, jax_mnist.py, torch_models.py", runs.scripts);
  }
  const Engine ours = {{self, "train", "--quiet"}, fmt::format("halfstep {}", cli::build_info.version), ""};
  std::map<std::string, Engine> engines;
  for (const PeerRow& row : peer_rows(runs)) engines.emplace(row.engine, ours);
  for (const auto& [name, script] : peer_scripts) {
    if (!engines.contains(name)) continue;
    Engine& engine = engines[name] = {{}, "", fmt::format("--peers has no {}", script)};
    const bool is_there = fs::is_regular_file(folder / script);
    for (const std::string& python : runs.pythons.empty() ? Words{"python3"} : runs.pythons) {
      if (is_there && !engine.missing.empty())
        engine = ask_version({python, folder / script}, "install Python 3, or give --python PATH", runs);
    }
  }
  if (!engines.contains("halfstep_mpi")) return engines;
  // Without the binding that it does by default, to one core for each of up to two ranks.
  Engine& mpi = engines["halfstep_mpi"] = ask_version({"mpirun", "-n", std::to_string(runs.ranks), "--bind-to", "none"},
                                                      "on Debian: apt install openmpi-bin", runs);
  mpi.start.insert(mpi.start.end(), ours.start.begin(), ours.start.end());
  mpi.version = fmt::format("{} on {} ranks", ours.version, runs.ranks);
  return engines;
}

Words peer_command(const Engine& engine, const PeerRow& row, const PeerRuns& runs, uint64_t seed) {
  const bool is_ours = is_halfstep(row), has_ranks = runs.ranks > 1 && row.engine != std::string_view("halfstep");
  const bool has_digits = peer_model(runs.model).data == PeerData::digits;
  Json training = {{"--data", is_ours && has_digits ? "mnist" : runs.folder},  // mnist: in HALFSTEP_DATA
                   {"--model", runs.model},
                   {"--train", runs.train},
                   {"--test", runs.test},
                   {"--epochs", runs.epochs},
                   {"--batch", runs.batch},
                   {"--lr", cli::as_written(runs.learning_rate)},
                   {"--seed", seed},
                   {"--threads", has_ranks ? std::max<int64_t>(1, threads() / runs.ranks) : threads()},
                   {"--device", hs::name(runs.device)}};
  if (has_ranks && is_ours) {  // a batch of all ranks is one micro-batch on each
    training["--batch"] = runs.batch / runs.ranks;
    training["--accumulate"] = runs.ranks;
  } else if (has_ranks) {
    training["--ranks"] = runs.ranks;
  }
  training["--precision"] = row.precision;
  Words words = engine.start;
  for (const auto& [flag, value] : training.items()) {
    words.push_back(flag);
    words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  words.insert(words.end(), row.flags.begin(), row.flags.end());
  words.insert(words.end(), {"--json", "-"});
  return words;
}

Error measure_peers(const PeerRuns& runs, Json& record) {
  const std::map<std::string, Engine> engines = find_engines(runs);
  Json &used = record["engines"] = Json::object(), &rows = record["rows"] = Json::array(),
       &absent = record["absent"] = Json::array();
  for (const auto& [name, engine] : engines) {
    if (!engine.missing.empty()) absent.push_back({{"name", name}, {"reason", engine.missing}});
  }
  std::vector<PeerRow> planned = peer_rows(runs);
  std::erase_if(planned, [&](const PeerRow& row) { return !engines.at(row.engine).missing.empty(); });
  std::vector<Json> measured(planned.size(), Json::array());
  std::vector<std::optional<Error>> errors(planned.size());
  const auto start = Clock::now();
  const auto run = [&](size_t i, int64_t turn) {
    const PeerRow& row = planned[i];
    const Engine& engine = engines.at(row.engine);
    std::string outcome;
    try {
      auto [result, environment] =
          measure_peer(peer_command(engine, row, runs, runs.seed + static_cast<uint64_t>(turn)), runs);
      if (!used.contains(row.engine)) used[row.engine] = {{"version", engine.version}, {"environment", environment}};
      outcome = fmt::format("{:.2f} s", report::number(result, "seconds"));
      measured[i].push_back(std::move(result));
    } catch (const Error& error) {
      if (cli::is_stop(error.code())) throw;
      errors[i] = error;
      outcome = fmt::format("no result: {}", error.what());
    }
    if (!runs.quiet) {
      cli::write_stderr(fmt::format("{}pass {} of {}, {:.0f} s: {}  {}\n", runs.label, turn + 1, runs.repeat,
                                    seconds_since(start), row.name, outcome));
    }
    return !errors[i];
  };
  in_turns(planned.size(), runs.repeat, run, [](int64_t) {});
  Error first(ExitCode::ok, "");
  for (size_t i = 0; i < planned.size(); ++i) {
    const std::string name = planned[i].name;
    // "Not available here" is a valid result if it is the first run's and not halfstep's.
    if (errors[i] && errors[i]->code() == ExitCode::device && measured[i].empty() && !is_halfstep(planned[i])) {
      absent.push_back({{"name", name}, {"reason", errors[i]->what()}});
      continue;
    }
    rows.push_back(summarize_peer(planned[i], measured[i]));
    if (!errors[i]) continue;
    rows.back()["error"] = errors[i]->what();
    if (first.code() == ExitCode::ok) first = Error(errors[i]->code(), name + ": " + errors[i]->what());
  }
  add_ratios(rows);
  return first;
}

}  // namespace hs::bench::measure
