// halfstep-bench report: renders existing records as tables and charts, several side by side, or a model as a page to
// draw on.
#include "bench/commands/commands.h"
#include "bench/report/drawing.h"
#include "bench/report/merged.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The records of a folder, by name.
std::vector<std::string> records_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".json") files.push_back(entry->path().string());
  }
  if (error) fail(ExitCode::io, "{}: cannot be read: {}", printable(folder), error.message());
  std::ranges::sort(files);
  return files;
}

// Takes away ".json" and the folders that all names begin with.
void shorten(std::vector<report::NamedRecord>& records) {
  size_t same = records[0].name.rfind('/') + 1;
  for (const report::NamedRecord& record : records) {
    while (!record.name.starts_with(records[0].name.substr(0, same))) {
      same = same < 2 ? 0 : records[0].name.rfind('/', same - 2) + 1;
    }
  }
  for (report::NamedRecord& record : records) {
    record.name = record.name.substr(same);
    if (record.name.ends_with(".json")) record.name.resize(record.name.size() - 5);
  }
}

class ReportCommand : public RecordingCommand {
  std::vector<std::string> paths_;
  std::string filter_, draw_;

  void declare(cli::Flags& flags) override {
    flags.examples({"report run.json --html run.html", "report run.json --md -",
                    "report before.json after.json runs/ --html runs.html   # all runs in one table and one chart",
                    "report runs/ --filter bf16",
                    "report --draw digits.safetensors --html draw.html   # a page to draw a digit on"},
                   "docs/reports.md says how to read the charts.");
    flags.words("RECORD", paths_, 0, 1000,
                "Records that --json wrote, and folders of them; the runs of several are shown side by side");
    flags.text("--filter", own(), filter_, "TEXT", "Of several records, only the runs whose name contains it");
    flags.text(
        "--draw", own(), draw_, "MODEL",
        "Instead of records, a file that train --save-model wrote: a page on which its model reads what is drawn");
  }

  void draw(const cli::Flags& flags) {
    if (!paths_.empty()) fail(ExitCode::usage, "report: RECORD and --draw, expected one of them");
    for (const char* flag : {"--json", "--csv", "--md", "--filter"}) {
      if (flags.given(flag)) fail(ExitCode::usage, "{}: is for records, --draw has --html alone", flag);
    }
    if (!flags.given("--html")) fail(ExitCode::usage, "--draw {}: there is no --html FILE to write the page to", draw_);
    outputs_.open();
    outputs_.write_page(report::drawing_page(load_model(draw_)));
    outputs_.print_report_path();
  }

  // What has no timed rows is an error where it was named, and passed over in a folder.
  std::vector<report::NamedRecord> read_all() const {
    std::vector<report::NamedRecord> records;
    for (const std::string& path : paths_) {
      const bool all = is_folder(path);
      for (const std::string& file : all ? records_in(path) : std::vector{path}) {
        try {
          Json record = report::read_record(file);
          if (!report::has_timed_rows(record)) {
            fail(ExitCode::bad_input,
                 "{}: is a record of {} without timed rows; those of train, techniques and bench peers have them",
                 printable(file), printable_text(report::text(record, "command")));
          }
          records.push_back({file, std::move(record)});
        } catch (const Error& error) {
          if (!all || error.code() != ExitCode::bad_input) throw;
          cli::notice(fmt::format("{}; passed over", error.what()));
        }
      }
    }
    if (records.empty()) fail(ExitCode::bad_input, "{}: has no record with timed rows", printable(paths_[0]));
    shorten(records);
    return records;
  }

  void run(const cli::Flags& flags) override {
    if (!draw_.empty()) return draw(flags);
    if (paths_.empty()) fail(ExitCode::usage, "report RECORD: 0 given, expected 1 or more, or --draw MODEL");
    outputs_.open();
    const bool is_one = paths_.size() == 1 && !is_folder(paths_[0]) && !flags.given("--filter");
    const Json record = is_one ? report::read_record(paths_[0]) : report::merged(read_all(), filter_);
    if (outputs_.any()) return outputs_.write(record);
    cli::write_stdout(report::machine_line(record) + "\n" + report::to_terminal(record));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace hs::bench::commands
