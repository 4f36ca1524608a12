#include "bench/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/parsed_number.h"
#include "engine/printable.h"

namespace hs::bench::report {
namespace {

// Whether a spreadsheet would evaluate the text. A number is no formula, whatever its sign.
bool is_formula(const std::string& cell) { return cell.find_first_of("=+-@") == 0 && !parsed_number<double>(cell); }

}  // namespace

std::string shown(const Figure& figure) {
  const Json& value = figure.value;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || (value.is_number_integer() && figure.factor == 1)) return value.dump();
  if (!value.is_number()) return "";
  const double number = value.get<double>();
  return std::isfinite(number) ? fmt::format(fmt::runtime(figure.format), number * figure.factor) : "-";
}

void Rows::add(const std::vector<Figure>& row) {
  Json& members = json.emplace_back(Json::object());
  std::vector<std::string> heads, cells;
  for (const Figure& figure : row) {
    const bool is_float = figure.value.is_number_float();
    if (*figure.member) members[figure.member] = is_float ? finite_or_null(figure.value.get<double>()) : figure.value;
    if (figure.head.empty()) continue;
    heads.push_back(figure.head);
    cells.push_back(shown(figure));
  }
  table.heads = std::move(heads);
  table.lines.push_back(std::move(cells));
}

std::string mebibytes(size_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }

std::vector<size_t> widths(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& head : table.heads) widths.push_back(head.size());
  for (const auto& line : table.lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  return widths;
}

std::string to_text(const Table& table, const std::vector<size_t>& at_least) {
  std::vector<size_t> columns = widths(table);
  for (size_t i = 0; i < at_least.size(); ++i) columns[i] = std::max(columns[i], at_least[i]);
  std::vector<std::vector<std::string>> lines = {table.heads};
  lines.insert(lines.end(), table.lines.begin(), table.lines.end());
  std::string text;
  for (const auto& line : lines) {
    std::string padded;
    for (size_t i = 0; i < line.size(); ++i) {
      if (i > 0) padded += "  ";
      padded +=
          i < table.left ? fmt::format("{:<{}}", line[i], columns[i]) : fmt::format("{:>{}}", line[i], columns[i]);
    }
    text += padded.substr(0, padded.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string markdown_cell(const std::string& cell) {
  std::string escaped;
  for (const char c : printable_text(cell)) {
    if (c == '<') {
      escaped += "&lt;";  // "\\<!-- results:end -->" would still contain the marker
    } else {
      if (c == '|' || c == '[' || c == '\\') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string to_markdown(const Table& table) {
  std::string text = "|", rule = "|";
  for (size_t i = 0; i < table.heads.size(); ++i) {
    text += fmt::format(" {} |", markdown_cell(table.heads[i]));
    rule += i < table.left ? "---|" : "---:|";
  }
  text += "\n" + rule + "\n";
  for (const auto& line : table.lines) {
    text += "|";
    for (const std::string& cell : line) text += fmt::format(" {} |", markdown_cell(cell));
    text += "\n";
  }
  return text;
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_number() || value.is_boolean()) return value.dump();
  const std::string cell = printable_text(value.is_string() ? value.get<std::string>() : value.dump());
  std::string quoted = is_formula(cell) ? "\"'" : "\"";
  for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

Table without_empty_columns(const Table& table) {
  Table kept = {{}, std::vector<std::vector<std::string>>(table.lines.size()), table.title, 0};
  for (size_t i = 0; i < table.heads.size(); ++i) {
    if (std::ranges::all_of(table.lines, [i](const auto& line) { return line[i].empty(); })) continue;
    kept.heads.push_back(table.heads[i]);
    kept.left += i < table.left;
    for (size_t n = 0; n < table.lines.size(); ++n) {
      kept.lines[n].push_back(table.lines[n][i].empty() ? "-" : table.lines[n][i]);
    }
  }
  return kept;
}

}  // namespace hs::bench::report
