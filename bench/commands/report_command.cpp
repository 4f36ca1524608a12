// halfstep-bench report: renders existing records as tables and charts, or into the README.
#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/console.h"
#include "bench/commands/commands.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/readme_tables.h"
#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::commands {
namespace {

class ReportCommand : public cli::Command {
 public:
  void declare(cli::Flags& flags) override {
    flags.examples(R"(Examples:
  halfstep-bench report run.json --html run.html
  halfstep-bench report run.json --md -

bench/results/README.md has the commands that make the tables of README.md and docs/results.md.
)");
    flags.words("RECORD", paths_, 1, 1000, "Records that --json wrote; one, unless for --readme");
    flags.text(
        "--readme", readme_, "FILE",
        "Write the tables of all records between this file's lines <!-- results:begin --> and <!-- results:end -->");
    outputs_.declare(flags);
  }
  void run(const cli::Flags& flags) override;

 private:
  void write_readme() const;

  std::vector<std::string> paths_;
  std::string readme_;
  report::Outputs outputs_;
};

void ReportCommand::write_readme() const {
  std::vector<Json> records;
  for (const std::string& path : paths_) records.push_back(report::read_record(path));
  const std::string page = report::with_tables(report::read_text(readme_), report::readme_tables(records), readme_);
  OutputFile file(readme_, "--readme");
  file.write(page);
  file.keep();
}

void ReportCommand::run(const cli::Flags& flags) {
  outputs_.open();
  if (flags.given("--readme")) {
    if (outputs_.any()) fail(ExitCode::usage, "--readme: goes alone; leave --json, --csv, --md and --html out");
    return write_readme();
  }
  if (paths_.size() > 1) {
    fail(ExitCode::usage, "report: {} records, expected one; several are for --readme", paths_.size());
  }
  const Json record = report::read_record(paths_[0]);
  if (outputs_.any()) return outputs_.write(record);
  cli::write_stdout(report::machine_line(record) + "\n" + report::to_terminal(record));
}

}  // namespace

std::unique_ptr<cli::Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace hs::bench::commands
