// Tables: rows of text under column heads, for the terminal, Markdown and CSV. bench/report/presentation.h builds them
// from records.
#pragma once

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct Table {
  std::vector<std::string> heads = {};
  std::vector<std::vector<std::string>> lines = {};  // each as long as heads
  std::string title = {};                            // may be empty
  size_t left = 1;                                   // the first columns that are text: aligned left, the others right
};

// A number or a text of a row, declared once: a member of the record and a cell of the table.
struct Figure {
  const char* member;         // empty: only in the table
  Json value;                 // null: no cell; a number that is not finite: null in the record and "-" in the table
  std::string head = {};      // empty: only in the record
  const char* format = "{}";  // of a number, after it is multiplied
  double factor = 1;
};
std::string shown(const Figure& figure);
inline constexpr double to_mebibytes = 1.0 / (1 << 20);

// A list of a record and its table, row by row. All rows have the same figures with a head.
struct Rows {
  Json json = Json::array();
  Table table = {};

  void add(const std::vector<Figure>& row);
};

// Drops the columns that have only empty cells; in the others an empty cell becomes "-".
Table without_empty_columns(const Table& table);

// Columns are as wide as their widest cell and at least `at_least`; lines have no trailing spaces. Omits the title.
std::vector<size_t> widths(const Table& table);
std::string to_text(const Table& table, const std::vector<size_t>& at_least = {});
std::string to_markdown(const Table& table);
// Both print a cell by printable_text(). Markdown: with tags, links and separators of cells escaped.
std::string markdown_cell(const std::string& cell);
// RFC 4180. Text that a spreadsheet would treat as a formula gets a leading '.
std::string csv_cell(const Json& value);

std::string mebibytes(size_t bytes);  // "9.0"

}  // namespace hs::bench::report
