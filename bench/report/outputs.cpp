#include "bench/report/outputs.h"

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "engine/check.h"
#include "engine/printable.h"

namespace hs::bench::report {

namespace {

namespace fs = std::filesystem;

// Without symbolic links and dots; the file may be missing.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : found;
}

bool is_same_file(const OutputFile& a, const OutputFile& b) {
  if (a.is_stdout() || b.is_stdout()) return a.is_stdout() && b.is_stdout();
  std::error_code error;  // one of them does not exist
  return resolved(a.path()) == resolved(b.path()) || fs::equivalent(a.path(), b.path(), error);
}

}  // namespace

bool EachOutput::operator()(const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::io) throw;
    first_ ? cli::notice(error.what()) : void(first_ = std::current_exception());
    return false;
  }
}

void EachOutput::end() const {
  if (first_) std::rethrow_exception(first_);
}

void check_record_is_clean(const fs::path& json, std::string_view commit) {
  if (!commit.ends_with("-dirty")) return;
  const fs::path folder = resolved(json).parent_path();
  for (auto part = folder.begin(); part != folder.end() && std::next(part) != folder.end(); ++part) {
    if (*part != "bench" || *std::next(part) != "results") continue;
    fail(ExitCode::usage,
         "--json {}: this program was built from changed sources (commit {}); commit them and build again, or give "
         "--allow-dirty",
         json.string(), commit);
  }
}

void Outputs::declare(cli::Flags& flags) {
  flags.text("--json", common(cli::Group::output).writes(), json_, "FILE", "Write the results as JSON, - for stdout");
  flags.text("--csv", rare(cli::Group::output).writes(), csv_, "FILE", "Write a line per row as CSV, - for stdout");
  flags.text("--md", rare(cli::Group::output).writes(), md_, "FILE", "Write the table as Markdown, - for stdout");
  flags.text("--html", common(cli::Group::output).writes(), html_, "FILE",
             "Write a report with charts as one HTML file, - for stdout");
  flags.on_off("--allow-dirty", rare(cli::Group::output), allow_dirty_,
               "Let --json write to bench/results though the sources were changed");
}

void Outputs::open(std::vector<const OutputFile*> all) {
  for (const auto& [flag, path] : {std::pair("--json", &json_), {"--csv", &csv_}, {"--md", &md_}, {"--html", &html_}}) {
    files_.emplace_back(*path, flag);
  }
  if (!allow_dirty_ && !json_.empty() && json_ != "-") check_record_is_clean(json_, cli::build_info.commit);
  for (const OutputFile& file : files_) all.push_back(&file);
  std::erase_if(all, [](const OutputFile* file) { return !file || !file->is_wanted() || file->path() == "/dev/null"; });
  for (const OutputFile* file : all) {
    const auto same = std::ranges::find_if(all, [&](const OutputFile* each) { return is_same_file(*each, *file); });
    if (*same != file)
      fail(ExitCode::usage, "{} and {}: both go to {}", (*same)->label(), file->label(), file->path().string());
  }
}

bool Outputs::any() const { return std::ranges::any_of(files_, &OutputFile::is_wanted); }
bool Outputs::use_stdout() const { return std::ranges::any_of(files_, &OutputFile::is_stdout); }

// Every file is written from the parsed JSON text, which has no NaN and only valid UTF-8, so `report` writes the same
// files from the record.
void Outputs::write(const Json& given) {
  const Json record = Json::parse(bench::to_text(given));
  check_record(record, "the record");
  EachOutput each;
  for (OutputFile& file : files_) {
    if (!file.is_wanted()) continue;
    each([&] {
      if (file.label() == "--json") file.write(bench::to_text(record));
      if (file.label() == "--csv") file.write(csv(record));
      if (file.label() == "--md") file.write(markdown(record));
      if (file.label() == "--html") file.write(html_report(record));
      file.keep();
      if (file.label() == "--html") running_ = nullptr;
    });
  }
  each.end();
}

void Outputs::write_page(const std::string& html) {
  files_.back().write(html);
  files_.back().keep();
}

bool Outputs::page_is_due() const {
  const OutputFile& page = files_.back();
  return shows_running_ && page.is_wanted() && !page.is_stream() && (running_.is_null() || seconds_since(shown_) >= 1);
}

void Outputs::show_running(Json record) {
  record["running"] = true;
  running_ = Json::parse(bench::to_text(record));
  shown_ = Clock::now();
  write_page_so_far();
}

void Outputs::show_failure(const std::string& reason) {
  if (running_.is_null()) return;
  running_.erase("running");
  running_["remarks"].push_back(printable_text(reason));
  write_page_so_far();
}

void Outputs::write_page_so_far() {
  try {
    OutputFile page(files_.back().path());
    page.write(html_report(running_));
    page.keep();
  } catch (const Error& error) {
    if (error.code() != ExitCode::io) throw;
    shows_running_ = false;
    cli::notice(error.what());
  }
}

void Outputs::finish(const Json& record) {
  EachOutput each;  // the terminal is one of them
  each([&] { write(record); });
  use_stdout() ? cli::write_stderr(to_terminal(record)) : cli::write_stdout(to_terminal(record));
  print_report_path();
  each.end();
}

void Outputs::finish(Json& record, const std::string& headline, const std::vector<Table>& tables,
                     const std::vector<std::string>& remarks) {
  present(record, headline, tables, remarks);
  finish(record);
}

void Outputs::print_report_path() const {
  for (const OutputFile& file : files_) {
    const bool is_kept = file.is_wanted() && !file.is_stdout() && file.unkept_path().empty();
    if (file.label() == "--html" && is_kept) {
      cli::write_stderr(fmt::format("report: {}\n", printable(file.path())));
    }
  }
}

}  // namespace hs::bench::report
