// halfstep-bench compare: tests whether the second of two records is slower. Its own record has the environment of the
// second, "config" (the two paths), and "rows": name, runs_before, runs_after, seconds_before, seconds_after, change
// (of the time: 0.1 is 10 % slower), accuracy_change, probability, verdict.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "bench/cli/environment.h"
#include "bench/commands/commands.h"
#include "bench/measure/comparison.h"
#include "bench/report/outputs.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::commands {
namespace {

class CompareCommand : public cli::Command {
 public:
  void declare(cli::Flags& flags) override {
    flags.examples(R"(Examples:
  halfstep-bench compare before.json after.json
  halfstep-bench compare before.json after.json --fail-if-slower 3%
  halfstep-bench compare before.json after.json --md -

docs/benchmarks.md says which differences count.
)");
    flags.words("RECORD", paths_, 2, 2, "BEFORE and AFTER, two records");
    flags.text("--fail-if-slower", limit_, "P%", "Exit code 1 if a row is more than P percent slower");
    outputs_.declare(flags);
  }
  void run(const cli::Flags& flags) override;

 private:
  double limit() const;

  std::vector<std::string> paths_;
  std::string limit_;
  report::Outputs outputs_;
};

// "3%" and "3" are three percent.
double CompareCommand::limit() const {
  const char* end = limit_.data() + limit_.size() - (limit_.ends_with('%') ? 1 : 0);
  double percent = 0;
  const auto [stop, error] = std::from_chars(limit_.data(), end, percent);
  if (error != std::errc() || stop != end || !(percent >= 0 && percent <= 1000)) {
    fail(ExitCode::usage, "--fail-if-slower {}: expected percent from 0 to 1000, for example 3%", limit_);
  }
  return percent / 100;
}

void CompareCommand::run(const cli::Flags& flags) {
  const bool judges = flags.given("--fail-if-slower");
  const double allowed = judges ? limit() : 0;
  outputs_.open();
  const Json before = report::read_record(paths_[0]), after = report::read_record(paths_[1]);
  const measure::Comparison comparison = measure::compare(before, after, paths_[0], paths_[1]);
  if (comparison.rows.empty()) {
    fail(ExitCode::bad_input, "{} and {}: have no row in common", paths_[0], paths_[1]);
  }
  Json record = report::new_record(name(), Device::cpu);
  if (report::text(after, "schema") == report::schema_name) record["environment"] = after["environment"];
  record["config"] = {{"before", paths_[0]}, {"after", paths_[1]}};
  const report::Rows rows = rows_of(comparison);
  record["rows"] = rows.json;
  std::vector<std::string> sentences = comparison.only_one;
  for (const std::string& line : comparison.differences) sentences.push_back("different " + line);
  outputs_.finish(record, fmt::format("{} and then {}", paths_[0], paths_[1]), {rows.table}, sentences);
  if (!judges) return;
  for (const measure::RowComparison& row : comparison.rows) {
    if (!row.is_regression(allowed)) continue;
    fail(ExitCode::missed, "{}: {:.1f} % slower, more than {}, p = {:.3f}", row.name, row.change * 100, limit_,
         row.probability);
  }
  for (const measure::RowComparison& row : comparison.rows) {
    if (row.can_tell && std::isfinite(row.change)) continue;
    fail(ExitCode::usage, "--fail-if-slower: {} has {} and {} runs, too few to tell; expected 3 or more (--repeat)",
         row.name, row.runs_before, row.runs_after);
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace hs::bench::commands
