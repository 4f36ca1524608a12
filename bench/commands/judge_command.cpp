// halfstep-bench judge: whether a kernel is right, and how much faster than another one.
#include <fmt/ranges.h>

#include <random>

#include "bench/cli/plugins.h"
#include "bench/commands/commands.h"
#include "bench/judge/judge.h"

namespace hs::bench::commands {
namespace {

// Adds what was timed to the table of `rows`, whose JSON becomes that of this verdict.
Json to_json(const judge::Verdict& verdict, report::Rows& rows) {
  rows.json = Json::array();
  for (const judge::TimedResult& one : verdict.timed) {
    const Interval interval = ratio_interval(one.seconds_against, one.seconds);
    rows.add({{"", verdict.slot + "=" + verdict.variant, "variant"},
              {"call", one.what},
              {"", one.what, "call"},
              {"against", one.against},
              {"", one.against, "against"},
              {"seconds", median(one.seconds), "us", "{:.1f}", 1e6},
              {"seconds_against", median(one.seconds_against), "us against", "{:.1f}", 1e6},
              {"rounds", one.seconds.size()},
              {"ratio", median(one.seconds_against) / median(one.seconds), "times as fast", "{:.2f}"},
              {"ratio_low", finite_or_null(interval.low)},
              {"ratio_high", finite_or_null(interval.high)},
              {"", fmt::format("{:.2f} - {:.2f}", interval.low, interval.high), "95 % interval"}});
  }
  const auto check = [](const judge::Check& one) { return Json{{"name", one.name}, {"runs", one.runs}}; };
  const bool refused = !verdict.refused_by.empty();
  return {{"slot", verdict.slot},
          {"variant", verdict.variant},
          {"device", hs::name(verdict.device)},
          {"refused_by", refused ? Json(verdict.refused_by) : Json()},
          {"reason", refused ? Json(verdict.reason) : Json()},
          {"text", verdict.text()},
          {"seconds", verdict.seconds},
          {"checks", mapped(verdict.checks, check)},
          {"timed", rows.json}};
}

class JudgeCommand : public RecordingCommand {
  std::vector<std::string> file_;
  judge::JudgeOptions options_;
  int64_t threads_ = 0;

  void declare(cli::Flags& flags) override {
    flags.examples({"judge my_relu.cpp", "judge my_relu.so --against simple --json verdict.json",
                    "judge conv2d_forward=winograd --quick", "judge my_relu.cu --device emulated"},
                   "docs/judge.md says what each check can tell, and what none can.");
    options_.seed = std::random_device()();
    flags.words("FILE", file_, 1, 1, "A plug-in, built or to be built, or SLOT=VARIANT of this program");
    flags.choice("--device", options_.device, {"all", "cpu", "cuda", "emulated"},
                 "Variants for it alone; emulated: cuda, with an error where there is no emulator");
    flags.text("--against", options_.against, "VARIANT", "Time it beside this one");
    flags.on_off("--quick", options_.quick, "Ten seconds: fewer rows, draws and rounds");
    flags.record("quick", [this] { return options_.quick; });
    flags.batch(options_.batch, 65536);
    flags.seed(options_.seed);
    flags.threads(threads_).unrecorded();
  }

  void run(const cli::Flags& flags) override {
    outputs_.open();
    cli::use_threads(threads_);
    TemporaryPath folder;
    const std::string& file = options_.shown = file_[0];
    options_.plugin = cli::built_plugin(file, folder);
    if (options_.plugin == file && file.find('=') != std::string::npos) std::swap(options_.plugin, options_.variant);
    cli::Plugin plugin;  // what it registers, only its own process knows
    if (!options_.plugin.empty()) {
      plugin = cli::look_at_plugin(options_.plugin);
      options_.plugin = std::filesystem::absolute(options_.plugin);  // its process may not ask for the current folder
    }
    std::vector<judge::Verdict> verdicts = judge::judge(options_);
    Json record = report::new_record(name(), verdicts[0].device, flags.config());
    record["verdicts"] = Json::array();
    report::Rows rows{.table = {.left = 3}};
    std::vector<std::string> remarks, refused;
    for (judge::Verdict& verdict : verdicts) {
      const bool is_loaded = !verdict.variant.empty();
      if (!is_loaded) verdict.slot = plugin.file;
      record["verdicts"].push_back(to_json(verdict, rows));
      const std::string judged = is_loaded ? verdict.slot + "=" + verdict.variant : plugin.file;
      if (is_loaded) plugin.registered.push_back({verdict.slot, verdict.variant, verdict.device});
      const auto checks =
          mapped(verdict.checks, [](const auto& check) { return fmt::format("{} ({})", check.name, check.runs); });
      if (!checks.empty()) remarks.push_back(fmt::format("{} passed {}", judged, fmt::join(checks, ", ")));
      remarks.push_back(fmt::format("{}: {}", judged, verdict.text()));
      if (!verdict.refused_by.empty()) refused.push_back(remarks.back());
    }
    if (!plugin.file.empty()) record["plugins"] = cli::describe_plugins({plugin});
    outputs_.finish(
        record,
        fmt::format("{}, batch {}, threads {}, drawn from seed {}", name(), options_.batch, threads(), options_.seed),
        rows.table.lines.empty() ? std::vector<report::Table>() : std::vector{rows.table}, remarks);
    if (!refused.empty()) fail(ExitCode::missed, "{}", fmt::join(refused, "; "));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_judge_command() { return std::make_unique<JudgeCommand>(); }

}  // namespace hs::bench::commands
