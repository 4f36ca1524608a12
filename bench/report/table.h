// Tables: rows of text under heads, as the terminal, Markdown and CSV show them. bench/report/presentation.h makes them
// from records.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> lines;  // each as long as heads
  std::string title = {};                       // may be empty
  size_t left = 1;                              // this many first columns are words: aligned left, the others right
};

// "nan", "-inf %": a missing value is "-" instead.
bool is_not_finite(const std::string& cell);
// Without the columns that have nothing but empty cells; in the others "-" stands for those.
Table without_empty_columns(const Table& table);

// Columns as wide as their widest cell, and as `at_least` says; no blanks at the ends of lines. Without the title.
std::vector<size_t> widths(const Table& table);
std::string to_text(const Table& table, const std::vector<size_t>& at_least = {});
std::string to_markdown(const Table& table);
std::string markdown_cell(const std::string& cell);  // without tags, links and ends of cells, on one line
// RFC 4180. Text that a spreadsheet would take for a formula begins with a '.
std::string csv_cell(const Json& value);

std::string mebibytes(size_t bytes);  // "9.0"

}  // namespace hs::bench::report
