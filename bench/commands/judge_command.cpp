// halfstep-bench judge: whether a kernel is right, and how much faster than another one.
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "bench/cli/plugins.h"
#include "bench/commands/commands.h"
#include "bench/judge/judge.h"

namespace hs::bench::commands {
namespace {

void add_timed(const std::string& judged, const Json& one, report::Rows& rows) {
  const double low = one["ratio_low"].is_null() ? 0 : one["ratio_low"].get<double>(),
               high = one["ratio_high"].is_null() ? INFINITY : one["ratio_high"].get<double>();
  rows.add({{"", judged, "variant"},
            {"", one["call"].get<std::string>(), "call"},
            {"", one["against"].get<std::string>(), "against"},
            {"seconds", one["seconds"].get<double>(), "us", "{:.1f}", 1e6},
            {"seconds_against", one["seconds_against"].get<double>(), "us against", "{:.1f}", 1e6},
            {"ratio", one["ratio"].get<double>(), "times as fast", "{:.2f}"},
            {"", fmt::format("{:.2f} - {:.2f}", low, high), "95 % interval"}});
}

class JudgeCommand : public RecordingCommand {
  std::vector<std::string> file_;
  judge::JudgeOptions options_;
  int64_t threads_ = 0;

  void declare(cli::Flags& flags) override {
    flags.examples({"judge my_relu.cpp", "judge my_relu.so --against simple --json verdict.json",
                    "judge conv2d_forward=winograd --quick"},
                   "docs/judge.md says what each check can tell, and what none can.");
    options_.seed = std::random_device()();
    flags.words("FILE", file_, 1, 1, "A plug-in, built or to be built, or SLOT=VARIANT of this program");
    flags.text("--against", own(), options_.against, "VARIANT", "Time it beside this one");
    flags.on_off("--quick", own(), options_.quick, "Ten seconds: fewer rows, draws and rounds");
    flags.record("quick", [this] { return options_.quick; });
    flags.batch(options_.batch, 65536);
    flags.seed(options_.seed);
    flags.threads(threads_).unrecorded();
  }

  void run(const cli::Flags& flags) override {
    outputs_.open();
    set_threads(static_cast<int>(threads_));  // not yet started: a copy of this process would have none of them
    if (file_[0].find('=') != std::string::npos && !std::filesystem::exists(file_[0])) options_.variant = file_[0];
    if (options_.variant.empty()) cli::load_plugins(file_);
    const std::vector<Json> verdicts = judge::judge(options_);
    Json record = report::new_record(name(), Device::cpu, flags.config());
    record["verdicts"] = verdicts;
    report::Rows rows{.table = {.left = 3}};
    std::vector<std::string> remarks, refused;
    for (const Json& verdict : verdicts) {
      const std::string judged = verdict["slot"].get<std::string>() + "=" + verdict["variant"].get<std::string>();
      for (const Json& one : verdict["timed"]) add_timed(judged, one, rows);
      std::string checks;
      for (const Json& one : verdict["checks"]) {
        checks += fmt::format("{}{} ({})", checks.empty() ? "" : ", ", one["name"].get<std::string>(),
                              one["runs"].get<int64_t>());
      }
      if (!checks.empty()) remarks.push_back(fmt::format("{} passed {}", judged, checks));
      remarks.push_back(fmt::format("{}: {}", judged, verdict["text"].get<std::string>()));
      if (!verdict["refused_by"].is_null()) refused.push_back(remarks.back());
    }
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
