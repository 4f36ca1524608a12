// halfstep-bench report: records, rendered again: as tables and charts, or into the README.
#include <fmt/format.h>

#include <algorithm>

#include "bench/commands.h"
#include "bench/console.h"
#include "bench/outputs.h"
#include "bench/presentation.h"
#include "bench/readme_tables.h"
#include "bench/record.h"
#include "data/printable.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

class ReportCommand : public Command {
 public:
  std::string name() const override { return "report"; }
  std::string summary() const override { return "Render a record again: table, Markdown, CSV, HTML, README"; }
  std::string footnote() const override {
    return R"(RECORD is what --json wrote. With none of --json, --csv, --md, --html and --readme the table goes to stdout.

--readme FILE writes the tables of all given records between the lines <!-- results:begin --> and <!-- results:end --> of
FILE. The README of this project is made by
  halfstep-bench report bench/results/cpu/*.json --readme README.md

Examples:
  halfstep-bench report run.json --html run.html
  halfstep-bench report run.json --md -
)";
  }
  void declare(Flags& flags) override {
    flags.words("RECORD", paths_, 1, 1000, "Records; one, unless it is for --readme");
    flags.text("--readme", readme_, "FILE", "Write the tables between the two markers of this file");
    outputs_.declare(flags);
  }
  void run(const Flags& flags) override;

 private:
  void write_readme() const;

  std::vector<std::string> paths_;
  std::string readme_;
  Outputs outputs_;
};

void ReportCommand::write_readme() const {
  std::vector<Json> records;
  for (const std::string& path : paths_) {
    records.push_back(read_record(path));
    about(path, [&] { return readme_tables({records.back()}); });
  }
  const std::string page = with_tables(read_text(readme_), readme_tables(records), readme_);
  OutputFile file(readme_, "--readme");
  file.write(page);
  file.keep();
}

void ReportCommand::run(const Flags& flags) {
  outputs_.open();
  if (flags.given("--readme")) {
    if (outputs_.any()) fail(ExitCode::usage, "--readme: goes alone; leave --json, --csv, --md and --html out");
    return write_readme();
  }
  if (paths_.size() > 1) {
    fail(ExitCode::usage, "report: {} records, expected one; several are for --readme", paths_.size());
  }
  const Json record = read_record(paths_[0]);
  about(paths_[0], [&] {
    if (outputs_.any()) return outputs_.write(record);
    write_stdout(printable_text(machine_line(record)) + "\n" + to_terminal(record));
  });
}

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace hs::bench
