// Tables, and the one that the rows of `train` and `techniques` make. bench/report/presentation.h has those of all
// records.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> lines;  // each as long as heads
  std::string title = {};                       // may be empty
  size_t left = 1;                              // the first so many columns are words: aligned left, the others right
};

// "nan", "-inf %": where there is no figure the cell is to be "-".
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

// For people: rounded, with the columns that this record has figures for.
Table results_table(const Json& record);
// What to say below it, one sentence each: rows that there are not, how to judge, what is missing and why.
std::vector<std::string> remarks(const Json& record);
// "mnist: 20000 for training, 5000 for the test. AMD EPYC, 2 cores, ... 2026-11-21, commit 35d0582950bc."
std::string machine_line(const Json& record);
std::string data_line(const Json& record);

// A row of `train` or `techniques` for programs: the same members always, null where there is no figure.
Json csv_row(const Json& row);

std::string mebibytes(size_t bytes);  // "9.0"

}  // namespace hs::bench::report
