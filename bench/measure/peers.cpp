#include "bench/measure/peers.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "bench/measure/statistics.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::measure {
namespace {

namespace fs = std::filesystem;

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

bool has_a_script(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(peer_scripts,
                             [&](const auto& script) { return fs::is_regular_file(folder / script.second, ignored); });
}

// Without the name of the program, which its messages start with.
std::string said_by(const cli::Finished& finished) {
  std::vector<std::string> names = {cli::program_name};
  for (const auto& [engine, file] : peer_scripts) names.push_back(fs::path(file).stem().string());
  for (const std::string& name : names) {
    if (finished.last_words.starts_with(name + ": ")) return finished.last_words.substr(name.size() + 2);
  }
  return finished.last_words;
}

std::string how_it_ended(const cli::Finished& finished) {
  const std::string words = said_by(finished);
  const std::string because = words.empty() ? "" : ": " + words;
  if (finished.signal != 0) return fmt::format("ended by signal {}{}", finished.signal, because);
  return fmt::format("exit code {}{}", finished.code, because);
}

// The engine of a script in one Python.
Engine ask(const std::string& python, const fs::path& script, double seconds, const std::function<void()>& check) {
  Engine engine = {{python, script.string()}, "", ""};
  const cli::Finished answer = cli::run_process({python, script.string(), "--version"}, seconds, check);
  if (answer.too_late) {
    engine.missing = fmt::format("{} did not say its version within {:g} s (--timeout)", python, seconds);
  } else if (answer.code == static_cast<int>(ExitCode::device)) {
    engine.missing = said_by(answer);
  } else if (answer.code != 0) {
    engine.missing = fmt::format("{} --version: {}", script.filename().string(), how_it_ended(answer));
  } else {
    engine.version = answer.out.substr(0, answer.out.find('\n'));
  }
  return engine;
}

double mean_of(const std::vector<Json>& runs, const char* name) {
  std::vector<double> values;
  for (const Json& run : runs) values.push_back(report::number(run, name));
  return mean(values);
}

}  // namespace

const std::vector<Contestant>& contestants(Device device) {
  static const std::vector<std::string> nhwc = {"--channels-last"},
                                        loader = {"--channels-last", "--loading", "dataloader"},
                                        compile = {"--channels-last", "--mode", "compile"};
  static const std::vector<Contestant> on_cpu = {
      {"halfstep f32", "halfstep", "f32", {}, "`train` of this program"},
      {"halfstep bf16", "halfstep", "bf16", {}, "the same, products and convolutions in bf16"},
      {"torch f32", "torch", "f32", {}, "PyTorch as it comes, all data in memory"},
      {"torch f32 NHWC", "torch", "f32", nhwc, "the same, convolutions in NHWC"},
      {"torch f32 compiled", "torch", "f32", compile, "and forward, loss and backward by torch.compile"},
      {"torch f32 DataLoader", "torch", "f32", loader, "not compiled, batches by a DataLoader with two processes"},
      {"torch bf16 NHWC", "torch", "bf16", nhwc, "autocast to bf16"},
      {"jax f32", "jax", "f32", {}, "the whole step compiled by XLA, all data in memory"},
      {"jax bf16", "jax", "bf16", {}, "the same, products and convolutions in bf16"},
  };
  static const std::vector<Contestant> on_cuda = {
      {"halfstep f32", "halfstep", "f32", {}, "`train` of this program, the step as a CUDA graph"},
      {"halfstep tf32", "halfstep", "tf32", {}, "f32 on tensor cores"},
      {"halfstep bf16", "halfstep", "bf16", {}, "products and convolutions in bf16"},
      {"torch f32", "torch", "f32", {}, "PyTorch as it comes, all data on the device"},
      {"torch tf32 NHWC", "torch", "tf32", nhwc, "f32 on tensor cores, convolutions in NHWC"},
      {"torch bf16 NHWC", "torch", "bf16", nhwc, "autocast to bf16"},
      {"torch bf16 compiled", "torch", "bf16", compile, "and forward, loss and backward by torch.compile"},
      {"torch f32 graph", "torch", "f32", {"--mode", "graph"}, "the whole step as a CUDA graph"},
      {"torch bf16 graph", "torch", "bf16", {"--channels-last", "--mode", "graph"}, "the same in bf16, NHWC"},
      {"torch bf16 DataLoader", "torch", "bf16", loader, "batches by a DataLoader with two processes"},
      {"jax f32", "jax", "f32", {}, "the whole step compiled by XLA, all data on the device"},
      {"jax tf32", "jax", "tf32", {}, "f32 on tensor cores"},
      {"jax bf16", "jax", "bf16", {}, "products and convolutions in bf16"},
  };
  return device == Device::cuda ? on_cuda : on_cpu;
}

fs::path find_peers(const std::string& given) {
  if (!given.empty()) {
    if (has_a_script(given)) return given;
    fail(ExitCode::io, "--peers {}: has none of the peers' scripts, {}", given,
         fmt::join(peer_scripts | std::views::values, ", "));
  }
  for (fs::path folder : {fs::current_path(), this_program().parent_path()}) {
    for (;; folder = folder.parent_path()) {
      if (has_a_script(folder / "bench/peers")) return folder / "bench/peers";
      if (folder == folder.parent_path()) break;
    }
  }
  fail(ExitCode::io,
       "the peers' scripts are neither in bench/peers here nor above this program; run it in the folder of halfstep's "
       "sources, or give --peers DIR");
}

std::map<std::string, Engine> find_engines(const fs::path& scripts, const std::vector<std::string>& pythons,
                                           bool must_start, double seconds, const std::function<void()>& check) {
  const std::string version = fmt::format("halfstep {}", cli::build_info.version);
  std::map<std::string, Engine> engines = {{"halfstep", {{this_program().string(), "train", "--quiet"}, version, ""}}};
  for (const auto& [name, file] : peer_scripts) {
    Engine& engine = engines[name];
    if (!fs::is_regular_file(scripts / file)) {
      engine.missing = fmt::format("--peers has no {}", file);
      continue;
    }
    for (const std::string& python : pythons) {
      try {
        engine = ask(python, scripts / file, seconds, check);
      } catch (const Error& error) {
        if (error.code() != ExitCode::io) throw;
        if (must_start) fail(ExitCode::io, "--python {}", error.what());
        engine.missing = fmt::format("{}; install Python 3, or give --python PATH", error.what());
      }
      if (engine.missing.empty()) break;
    }
  }
  return engines;
}

PeerResult read_result(const cli::Finished& finished, double limit, int64_t samples) {
  if (finished.too_late) fail(ExitCode::missed, "did not end within {:g} s (--timeout)", limit);
  if (finished.code != 0) {
    const bool documented = finished.code >= static_cast<int>(ExitCode::usage) &&
                            finished.code <= static_cast<int>(ExitCode::out_of_memory);
    fail(documented ? ExitCode{finished.code} : ExitCode::io, "{}", how_it_ended(finished));
  }
  const Json record = Json::parse(finished.out, nullptr, false);
  if (record.is_discarded()) {
    fail(ExitCode::bad_input, "its stdout is not JSON: {} bytes, '{}'", finished.out.size(),
         finished.out.substr(0, std::min<size_t>(finished.out.find('\n'), 60)));
  }
  report::check_record(record, "its record");
  const size_t rows = report::member(record, "rows").size();
  if (rows != 1) fail(ExitCode::bad_input, "its record has {} rows, expected 1", rows);
  const Json& row = record["rows"][0];
  const std::vector<double> seconds = report::numbers(row, "seconds_all");
  if (seconds.size() != 1 || !(seconds[0] > 0)) {
    fail(ExitCode::bad_input, "its record has {} times above 0, expected 1", seconds.size());
  }
  if (std::isnan(report::number(row, "test_accuracy")) || std::isnan(report::number(row, "final_loss"))) {
    fail(ExitCode::bad_input, "its record has no accuracy or no loss");
  }
  // What it was asked for is not in every record, how much it did is.
  const double trained = report::number(row, "samples_per_second") * seconds[0];
  if (!(std::abs(trained - static_cast<double>(samples)) <= 1e-6 * static_cast<double>(samples))) {
    fail(ExitCode::bad_input, "trained on {:.0f} samples by its record, expected {}", trained, samples);
  }
  return {row, record["environment"]};
}

Json summarize(const Contestant& contestant, const std::vector<Json>& runs, const std::string& error) {
  const bool is_ours = contestant.engine == std::string("halfstep");
  std::vector<double> seconds, accuracies;
  Json all_runs = Json::array();
  double peak = NAN, samples = NAN;
  for (const Json& run : runs) {
    seconds.push_back(report::number(run, "seconds"));
    accuracies.push_back(report::number(run, "test_accuracy"));
    samples = report::number(run, "samples_per_second") * seconds.back();
    peak = std::fmax(peak, report::number(run, "peak_bytes"));
    for (const Json& each : report::member(run, "runs")) all_runs.push_back(each);
  }
  const Interval interval = median_interval(seconds);
  Json row = {
      {"name", contestant.name},
      {"group", is_ours ? "halfstep" : "peer"},
      {"engine", contestant.engine},
      {"precision", contestant.precision},
      {"flags", contestant.flags},
      {"seconds", finite_or_null(median(seconds))},
      {"seconds_low", finite_or_null(interval.low)},
      {"seconds_high", finite_or_null(interval.high)},
      {"seconds_all", finite_or_null(seconds)},
      {"samples_per_second", finite_or_null(samples / median(seconds))},
      {"warmup_seconds", finite_or_null(mean_of(runs, "warmup_seconds"))},
      {"test_accuracy", finite_or_null(mean(accuracies))},
      {"test_accuracy_all", finite_or_null(accuracies)},
      {"final_loss", finite_or_null(mean_of(runs, "final_loss"))},
      {"peak_bytes", std::isfinite(peak) ? Json(static_cast<int64_t>(peak)) : Json(nullptr)},
  };
  if (is_ours) row["epochs"] = all_runs.empty() ? Json::array() : all_runs[0]["epochs"];
  if (is_ours) row["runs"] = all_runs;
  if (!error.empty()) row["error"] = error;
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
    const double ratio = median(theirs) / median(base);
    const Interval interval = ratio_interval(theirs, base);
    row["ratio"] = ratio;
    row["ratio_low"] = finite_or_null(interval.low);
    row["ratio_high"] = finite_or_null(interval.high);
    row["compared_with"] = report::text(*fastest, "name");
    row["verdict"] = theirs.size() < 3      ? "too few runs to tell"
                     : interval.contains(1) ? "within noise"
                     : ratio > 1            ? "slower"
                                            : "faster";
  }
}

}  // namespace hs::bench::measure
