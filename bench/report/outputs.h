// --json, --csv, --md and --html: one record, four ways to write it.
#pragma once

#include <deque>
#include <exception>
#include <filesystem>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/report/table.h"
#include "engine/files/output_file.h"

namespace hs::bench::report {

// Several outputs, each written even if another cannot be: a full disk for one must not cost the others.
class EachOutput {
 public:
  // Keeps an Error (io) of `write` for end(); a later one is a notice. Returns whether there was none.
  bool operator()(const std::function<void()>& write);
  void end() const;  // throws what was kept

 private:
  std::exception_ptr first_;
};

class Outputs {
 public:
  void declare(cli::Flags& flags);
  // To be called after the flags are read and before any work. `others`: other files that the command writes. Throws
  // Error: io (a file that could not be written), usage (two names for one file, or check_record_is_clean()).
  void open(std::vector<const OutputFile*> others = {});

  // For a process that leaves the writing to another one.
  void discard() { json_ = csv_ = md_ = html_ = ""; }
  bool any() const;
  // If true, the command's own table goes to stderr.
  bool use_stdout() const;
  // Writes each of the files, as EachOutput. Throws Error (io).
  void write(const Json& record);
  // Writes --html alone, a page of another kind. Throws Error (io).
  void write_page(const std::string& html);
  // Writes the files, shows the record on the terminal, though a file could not be written, and prints the path of the
  // report. With a headline: adds what present() does before.
  void finish(const Json& record);
  void finish(Json& record, const std::string& headline, const std::vector<Table>& tables,
              const std::vector<std::string>& remarks = {});
  // While the work goes on: whether the page of --html, a regular file, is to be written anew. Once a second at most.
  bool page_is_due() const;
  // Writes the page of what is known so far, which loads itself again until the next one is there. If it cannot be
  // written, that is a notice, and the next one is that of the end.
  void show_running(Json record);
  // The work has ended by an error: if there is such a page, and no later one, writes it once more, with the reason.
  void show_failure(const std::string& reason);
  // Prints "report: PATH" as the last line on stderr if an HTML file was written.
  void print_report_path() const;

 private:
  void write_page_so_far();

  std::string json_, csv_, md_, html_;
  bool allow_dirty_ = false;
  std::deque<OutputFile> files_;  // that of --html is the last
  Json running_;                  // what the page shows that is not the last one
  bool shows_running_ = true;     // nothing has prevented it
  Clock::time_point shown_{};
};

// Records in bench/results of a checkout name the commit that produced them, so a program built from modified sources
// ("-dirty") must not write there. Throws Error (usage).
void check_record_is_clean(const std::filesystem::path& json, std::string_view commit);

}  // namespace hs::bench::report
