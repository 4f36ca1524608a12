#include "bench/outputs.h"

#include <algorithm>

#include "bench/console.h"
#include "bench/html_report.h"
#include "bench/presentation.h"
#include "bench/record.h"
#include "engine/check.h"

namespace hs::bench {

void Outputs::declare(Flags& flags) {
  flags.text("--json", json_, "FILE", "Write the results as JSON, - for stdout");
  flags.text("--csv", csv_, "FILE", "Write a line per row as CSV, - for stdout");
  flags.text("--md", md_, "FILE", "Write the table as Markdown, - for stdout");
  flags.text("--html", html_, "FILE", "Write a report with charts as one HTML file, - for stdout");
}

void Outputs::open(const OutputFile* other) {
  for (const auto& [flag, path] : {std::pair("--json", &json_), {"--csv", &csv_}, {"--md", &md_}, {"--html", &html_}}) {
    files_.emplace_back(flag, *path);
  }
  std::vector<const OutputFile*> all = {other};
  for (const OutputFile& file : files_) all.push_back(&file);
  std::erase_if(all, [](const OutputFile* file) { return !file || !file->is_wanted() || file->path() == "/dev/null"; });
  for (const OutputFile* file : all) {
    const auto same = std::ranges::find(all, file->path(), &OutputFile::path);
    if (*same != file)
      fail(ExitCode::usage, "{} and {}: both go to {}", (*same)->flag(), file->flag(), file->path().string());
  }
}

bool Outputs::any() const { return std::ranges::any_of(files_, &OutputFile::is_wanted); }
bool Outputs::use_stdout() const { return std::ranges::any_of(files_, &OutputFile::is_stdout); }

// Every file is made from what a reader of the JSON gets, without NaN and with text that is UTF-8: so `report` makes
// the same files from it.
void Outputs::write(const Json& given) {
  const Json record = Json::parse(to_text(given));
  check_record(record, "the record");
  for (OutputFile& file : files_) {
    if (!file.is_wanted()) continue;
    if (file.flag() == "--json") file.stage(to_text(record));
    if (file.flag() == "--csv") file.stage(csv(record));
    if (file.flag() == "--md") file.stage(markdown(record));
    if (file.flag() == "--html") file.stage(html_report(record));
  }
  for (OutputFile& file : files_) file.publish();
}

void Outputs::finish(const Json& record) {
  write(record);
  use_stdout() ? write_stderr(to_terminal(record)) : write_stdout(to_terminal(record));
  print_report_path();
}

void Outputs::print_report_path() const {
  for (const OutputFile& file : files_) {
    if (file.flag() == "--html" && file.is_wanted() && !file.is_stdout()) {
      write_stderr(fmt::format("report: {}\n", file.path().string()));
    }
  }
}

}  // namespace hs::bench
