// --json, --csv, --md and --html: one record, four ways to write it.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "bench/cli/command_line.h"
#include "bench/cli/json_file.h"
#include "data/io/output_file.h"

namespace hs::bench::report {

class Outputs {
 public:
  void declare(cli::Flags& flags);
  // After the flags are read and before any work. `other`: one more that the command writes. Throws Error: io (a file
  // that could not be written), usage (two of them are the same file, or check_record_is_clean()).
  void open(const OutputFile* other = nullptr);

  bool any() const;
  // Then the command's own table goes to stderr.
  bool use_stdout() const;
  // All of the files appear, or none. Throws Error (io).
  void write(const Json& record);
  // The files, what the record shows on the terminal, and the path of the report.
  void finish(const Json& record);
  // "report: PATH" of the HTML file, as a last line on stderr; nothing if there is none.
  void print_report_path() const;

 private:
  std::string json_, csv_, md_, html_;
  bool allow_dirty_ = false;
  std::deque<OutputFile> files_;
};

// Records in bench/results of a checkout name the commit that made them, so a program that was built from changed
// sources ("-dirty") writes none there. Throws Error (usage).
void check_record_is_clean(const std::filesystem::path& json, std::string_view commit);

}  // namespace hs::bench::report
