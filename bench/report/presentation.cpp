#include "bench/report/presentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/report/record.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

// A record that was written by a command has a few dozen columns. What has more than this is none, and would take
// memory for rows times columns.
constexpr size_t most_columns = 1000, most_cells = 2'000'000;

[[noreturn]] void fail_too_large(size_t rows, size_t columns) {
  fail(ExitCode::bad_input, "a table of {} rows and {} columns, expected at most {} columns and {} cells", rows,
       columns, most_columns, most_cells);
}

// Scalar members, those of objects as "object.member". Lists are left out.
void flatten(const Json& object, const std::string& prefix, Json& flat) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      flatten(value, prefix + name + ".", flat);
    } else if (!value.is_array()) {
      flat[prefix + name] = value;
      if (flat.size() > most_columns) fail_too_large(1, flat.size());
    }
  }
}

// The list that a record is about, flat. Kernels have a row for each variant.
std::vector<Json> flat_rows(const Json& record) {
  std::vector<Json> rows;
  for (const char* list : {"rows", "calls", "kernels"}) {
    if (!member(record, list).is_array()) continue;  // "kernels" of training are an object
    for (const Json& item : objects(record, list)) {
      Json row = Json::object();
      flatten(item, "", row);
      if (!item.contains("variants")) rows.push_back(row);
      for (const Json& variant : objects(item, "variants")) {
        Json one = row;
        flatten(variant, "", one);
        rows.push_back(one);
      }
    }
    break;
  }
  return rows;
}

std::vector<std::string> heads_of(const std::vector<Json>& rows) {
  std::vector<std::string> heads;
  std::set<std::string> seen;
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.items()) {
      if (seen.insert(name).second) heads.push_back(name);
    }
    if (heads.size() > most_columns || heads.size() * rows.size() > most_cells) {
      fail_too_large(rows.size(), heads.size());
    }
  }
  return heads;
}

// Of a record that brings no tables: written before there were any.
Table list_table(const Json& record) {
  const std::vector<Json> rows = flat_rows(record);
  Table table = {heads_of(rows), {}};
  for (const Json& row : rows) {
    auto& line = table.lines.emplace_back();
    for (const std::string& head : table.heads) {
      const Json& value = member(row, head.c_str());
      line.push_back(value.is_null()           ? ""
                     : value.is_string()       ? value.get<std::string>()
                     : value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
                                               : value.dump());
    }
  }
  return without_empty_columns(table);
}

// Needs no quotes in CSV.
bool is_word(const std::string& name) {
  return csv_cell(name) == '"' + name + '"' &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c != ',' && c != '"'; });
}

}  // namespace

Json to_json(const std::vector<Table>& tables) {
  Json all = Json::array();
  for (const Table& table : tables) {
    auto lines = table.lines;
    for (auto& line : lines) std::ranges::replace_if(line, is_not_finite, std::string(1, '-'));
    all.push_back({{"title", table.title}, {"left", table.left}, {"heads", table.heads}, {"lines", lines}});
  }
  return all;
}

void present(Json& record, const std::string& headline, const std::vector<Table>& tables,
             const std::vector<std::string>& remarks) {
  record["headline"] = headline;
  record["tables"] = to_json(tables);
  record["remarks"] = remarks;
}

bool has_results(const Json& record) {
  const Json& rows = objects(record, "rows");
  return !rows.empty() && rows[0].contains("seconds_all");
}

std::string opening(const Json& record) {
  const std::string headline = text(record, "headline"), model = text(part(record, "config"), "model");
  if (!headline.empty()) return headline;
  return model.empty() ? data_line(record) : fmt::format("{}, {}", model, data_line(record));
}

std::vector<Table> tables_of(const Json& record) {
  std::vector<Table> tables;
  if (!record.contains("tables")) {
    tables.push_back(has_results(record) ? results_table(record) : list_table(record));
    if (tables[0].heads.empty()) tables.clear();
    return tables;
  }
  for (const Json& table : objects(record, "tables")) {
    const Json& left = member(table, "left");
    tables.push_back(
        {table["heads"], table["lines"], text(table, "title"), left.is_number_unsigned() ? left.get<size_t>() : 1});
  }
  return tables;
}

std::string to_terminal(const std::vector<Table>& tables, const std::string& data_name) {
  std::vector<Table> shown = tables;
  std::string all;
  for (Table& table : shown) {
    if (data_name.empty() || table.heads[0] == "data") continue;
    table.heads.insert(table.heads.begin(), "data");
    for (auto& line : table.lines) line.insert(line.begin(), data_name);
    if (!table.title.empty()) table.title = fmt::format("{}  {}", data_name, table.title);
    ++table.left;
  }
  std::map<std::vector<std::string>, std::vector<size_t>> columns;  // tables with the same heads stand in line
  for (const Table& table : shown) {
    const std::vector<size_t> own = widths(table);
    std::vector<size_t>& common = columns[table.heads];
    common.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) common[i] = std::max(common[i], own[i]);
  }
  for (const Table& table : shown) {
    if (&table != &shown.front() || !table.title.empty()) all += "\n";
    if (!table.title.empty()) all += table.title + "\n";
    all += to_text(table, columns[table.heads]);
  }
  return all;
}

std::string to_terminal(const Json& given) {
  const Json record = printable(given);
  const std::string data = text(part(record, "data"), "name");
  std::string all = opening(record) + "\n" + to_terminal(tables_of(record), data);
  const std::vector<std::string> sentences = remarks(record);
  if (!sentences.empty()) all += "\n";
  for (const std::string& sentence : sentences) {
    all += data.empty() ? fmt::format("{}\n", sentence) : fmt::format("{}  {}\n", data, sentence);
  }
  return all;
}

std::string markdown(const Json& given) {
  const Json record = printable(given);
  std::string all = fmt::format("{}. {}.\n", markdown_cell(opening(record)), markdown_cell(machine_line(record)));
  for (const Table& table : tables_of(record)) {
    if (!table.title.empty()) all += fmt::format("\n**{}**\n", markdown_cell(table.title));
    all += fmt::format("\n{}", to_markdown(table));
  }
  for (const std::string& sentence : remarks(record)) all += fmt::format("\n{}\n", markdown_cell(sentence));
  return all;
}

std::string csv(const Json& given) {
  const Json record = printable(given);
  std::vector<Json> rows;
  if (has_results(record)) {
    for (const Json& row : objects(record, "rows")) rows.push_back(csv_row(row));
  } else {
    rows = flat_rows(record);
  }
  const std::vector<std::string> heads = heads_of(rows);
  std::string lines = "schema,command,data,device,date,commit";
  for (const std::string& head : heads) lines += fmt::format(",{}", is_word(head) ? head : csv_cell(head));
  lines += "\r\n";
  const Json& environment = part(record, "environment");
  for (const Json& row : rows) {
    lines += fmt::format("{},{},{}", csv_cell(member(record, "schema")), csv_cell(member(record, "command")),
                         csv_cell(member(part(record, "data"), "name")));
    for (const char* name : {"device", "date", "commit"}) {
      lines += fmt::format(",{}", csv_cell(member(environment, name)));
    }
    for (const std::string& head : heads) lines += fmt::format(",{}", csv_cell(member(row, head.c_str())));
    lines += "\r\n";
  }
  return lines;
}

}  // namespace hs::bench::report
