// The rows of a record as a table: as text, Markdown and CSV. bench/html_report.h uses the same table.
#pragma once

#include <string>
#include <vector>

#include "bench/json_file.h"

namespace hs::bench {

struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> lines;  // each as long as heads
};

// Columns as wide as their widest cell, the first `left` of them aligned left, the others right, no blanks at the ends
// of lines.
std::string to_text(const Table& table, size_t left = 1);
std::string to_markdown(const Table& table);

// For people: rounded, with the columns that this record has figures for.
Table results_table(const Json& record);
// What to say below it, one sentence each: rows that there are not, how to judge, what is missing and why.
std::vector<std::string> remarks(const Json& record);
// "mnist: 20000 for training, 5000 for the test. AMD EPYC, 2 cores, ... 2026-11-21, commit 35d0582950bc."
std::string machine_line(const Json& record);
std::string data_line(const Json& record);

std::string markdown(const Json& record);
// For programs: a line per row, RFC 4180, every digit, the same columns always; figures that there are not are empty.
std::string csv(const Json& record);

std::string mebibytes(size_t bytes);  // "9.0"

}  // namespace hs::bench
