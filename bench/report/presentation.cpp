#include "bench/report/presentation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/report/record.h"

namespace hs::bench::report {
namespace {

// A column of timed runs, for people and for programs. The CSV has every column in this order; the table has the
// columns with a head, sorted by `place`, that the record has a value for.
struct Column {
  std::string object;          // the object in the row that has the member; empty: the row itself
  const char* member;          // in the CSV as OBJECT_MEMBER
  const char* head = nullptr;  // in the table; nullptr: not in the table
  int place = 0;               // in the table
  const char* format = "";     // of the cell, as in Figure
  double factor = 1;
  std::string (*cell)(const Json& row, double value) = nullptr;  // instead of the format
};

// Three significant digits, or all digits before the point if there are more.
std::string rounded(const Json&, double value) {
  return fmt::format("{:.{}f}", value, std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0);
}
// " -67 %" of the baseline's bytes; empty without a baseline.
std::string bytes_of(const Json& row) {
  const double bytes = number(row, "bytes_ratio");
  return std::isfinite(bytes) ? fmt::format(" {:+.0f} %", (bytes - 1) * 100) : "";
}
std::string remark(const Json& row, double) {
  if (row.contains("error")) return "failed: " + text(row, "error");
  const std::string bytes = flag(row, "for_memory") ? bytes_of(row) : "";
  return text(row, "verdict") + (bytes.empty() ? "" : fmt::format(";{} bytes", bytes));
}

const Column columns[] = {
    {"", "name", "row", 1, "", 1, [](const Json& row, double) { return label_of(row); }},
    {"", "group"},
    {"", "seconds", "seconds", 3, "{:.2f}"},
    {"", "seconds_low", "95 % interval", 4, "", 1,
     [](const Json& row, double low) { return fmt::format("{:.2f} - {:.2f}", low, number(row, "seconds_high")); }},
    {"", "seconds_high"},
    {"", "samples_per_second", "samples/s", 5, "", 1, rounded},
    {"", "speed_up", "speed-up", 6, "{:.2f}x"},
    {"", "speed_up_low"},
    {"", "speed_up_high"},
    {"", "verdict", "remark", 19, "", 1, remark},
    {"", "stall_share", "stall", 12, "{:.1f} %", 100},
    {"", "test_accuracy", "accuracy", 9, "{:.2f} %", 100},
    {"", "loss", "test loss", 9, "{:.3f}"},  // of a merged record's rows
    {"", "final_loss"},
    {"", "peak_bytes", "peak MiB", 10, "{:.1f}", to_mebibytes},
    {"", "peak_resident_bytes"},
    {"", "energy_joules", "joules", 18, "", 1, rounded},
    {"target", "accuracy"},
    {"target", "loss"},
    {"target", "reached_share", "reached", 15, "{:.0f} %", 100},
    {"target", "seconds", "to target s", 13, "{:.2f}"},
    {"target", "seconds_low"},
    {"target", "seconds_high"},
    {"target", "evaluation_seconds", "evaluation s", 14, "{:.2f}"},
    {"cost", "per_run", "cost per run", 16, "{:.3g}"},
    {"cost", "to_target", "cost to target", 17, "{:.3g}"},
    {"", "error"},
    {"", "ratio", "ratio", 7, "{:.2f}"},
    {"", "ratio_low", "its interval", 8, "", 1,
     [](const Json& row, double low) { return fmt::format("{:.2f} - {:.2f}", low, number(row, "ratio_high")); }},
    {"", "ratio_high"},
    {"", "cached_bytes", "cached MiB", 11, "{:.1f}", to_mebibytes},
    {"", "train_flags", "flags of train", 2, "", 1, [](const Json& row, double) { return text(row, "train_flags"); }},
};

const Json& owner_of(const Column& column, const Json& row) {
  return column.object.empty() ? row : part(row, column.object.c_str());
}

// Text columns need no number; all other cells do.
std::string cell_of(const Column& column, const Json& row) {
  const std::string_view member = column.member;
  if (column.cell == remark || member == "name" || member == "train_flags") return column.cell(row, NAN);
  const double value = number(owner_of(column, row), column.member);
  if (!std::isfinite(value)) return "";
  return column.cell ? column.cell(row, value) : shown({"", value, "", column.format, column.factor});
}

Json csv_row(const Json& row) {
  Json values = Json::object();
  for (const Column& column : columns) {
    const std::string head = column.object.empty() ? column.member : column.object + "_" + column.member;
    if (head != "loss" || row.contains("loss")) values[head] = member(owner_of(column, row), column.member);
  }
  flatten(part(row, "settings"), "settings.", values);
  return values;
}

// The record's main list, flattened. Kernels have a row per variant.
std::vector<Json> flat_rows(const Json& record) {
  std::vector<Json> rows;
  for (const char* list : {"rows", "calls", "kernels"}) {
    if (objects(record, list).empty()) continue;  // "kernels" of training are an object
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
  }
  return heads;
}

// The table of a record without its own tables, which predates them.
Table list_table(const Json& record) {
  const std::vector<Json> rows = flat_rows(record);
  Table table = {heads_of(rows), {}};
  for (const Json& row : rows) {
    auto& line = table.lines.emplace_back();
    for (const std::string& head : table.heads) {
      const Json& value = member(row, head.c_str());
      line.push_back(shown({"", value, "", "{:.4g}"}));
    }
  }
  return without_empty_columns(table);
}

// Whether the name needs no quotes in CSV.
bool is_word(const std::string& name) {
  return csv_cell(name) == '"' + name + '"' &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c != ',' && c != '"'; });
}

}  // namespace

void flatten(const Json& object, const std::string& prefix, Json& flat) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      flatten(value, prefix + name + ".", flat);
    } else if (!value.is_array()) {
      flat[prefix + name] = value;
    }
  }
}

std::string label_of(const Json& row) {
  return text(row, "group") == "cumulative" ? "+ " + text(row, "name") : text(row, "name");
}

Table results_table(const Json& record) {
  std::vector<const Column*> shown;
  for (const Column& column : columns) {
    if (column.head) shown.push_back(&column);
  }
  std::ranges::sort(shown, {}, &Column::place);
  Table table;
  for (const Column* column : shown) table.heads.emplace_back(column->head);
  for (const Json& row : objects(record, "rows")) {
    auto& line = table.lines.emplace_back();
    for (const Column* column : shown) line.push_back(cell_of(*column, row));
  }
  table = without_empty_columns(table);
  if (table.heads.size() > 1 && table.heads[1] == "flags of train") table.left = 2;
  return table;
}

Json to_json(const std::vector<Table>& tables) {
  Json all = Json::array();
  for (const Table& table : tables) {
    all.push_back({{"title", table.title}, {"left", table.left}, {"heads", table.heads}, {"lines", table.lines}});
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

std::vector<std::string> remarks(const Json& record) {
  std::vector<std::string> sentences;
  std::string for_memory;
  for (const Json& row : objects(record, "rows")) {
    if (text(row, "group") == "alone" && flag(row, "for_memory")) {
      for_memory += (for_memory.empty() ? "" : ", ") + text(row, "name") + bytes_of(row);
    }
  }
  if (!for_memory.empty()) {
    sentences.push_back("Made to save memory, to be judged by peak bytes and not by seconds: " + for_memory + ".");
  }
  if (text(record, "command") == "peers") {
    sentences.emplace_back(
        "Each program warms up before it takes its time, compiling included. The ratio is of seconds, to halfstep's "
        "fastest row of the same precision: above 1 that engine is slower, below 1 halfstep is.");
    std::vector<std::string> versions;
    const Json& engines = part(record, "engines");
    for (const auto& [name, engine] : engines.items()) versions.push_back(text(part(engines, name.c_str()), "version"));
    if (!versions.empty()) sentences.push_back(fmt::format("Engines: {}.", fmt::join(versions, ", ")));
  }
  for (const Json& absent : objects(record, "absent")) {
    sentences.push_back(fmt::format("No row for {}: {}.", text(absent, "name"), text(absent, "reason")));
  }
  const std::string no_energy = text(part(record, "energy"), "why_not");
  if (!no_energy.empty()) sentences.push_back(fmt::format("No energy: {}.", no_energy));
  for (const std::string& own : texts(record, "remarks")) sentences.push_back(own);
  return sentences;
}

std::string data_line(const Json& record) {
  const Json& data = part(record, "data");
  if (data.is_null()) return "";
  if (!data.contains("train")) return text(data, "name");
  return fmt::format("{}: {:.0f} for training, {:.0f} for the test", text(data, "name"), number(data, "train"),
                     number(data, "test"));
}

std::string machine_line(const Json& record) {
  const Json& environment = part(record, "environment");
  std::vector<std::string> parts = {text(environment, "cpu")};
  for (const char* count : {"cores", "threads"}) {
    if (const double value = number(environment, count); std::isfinite(value)) {
      parts.push_back(fmt::format("{:.0f} {}", value, count));
    }
  }
  if (const std::string cap = text(environment, "isa_cap"); !cap.empty()) parts.push_back("capped to " + cap);
  if (text(environment, "device") != "cpu") {
    const std::string name = text(part(environment, "device_facts"), "name");
    parts.push_back(name.empty() ? text(environment, "device") : name);
  }
  for (const char* name : {"os", "compiler", "torch"}) {
    const std::string part = text(environment, name);
    if (!part.empty())
      parts.push_back(name == std::string("torch") ? "PyTorch " + part : part.substr(0, part.find(',')));
  }
  if (environment.contains("date")) parts.push_back(text(environment, "date").substr(0, 10));
  if (environment.contains("commit")) parts.push_back("commit " + text(environment, "commit"));
  return fmt::format("{}", fmt::join(parts, ", "));
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
    for (auto& line : tables.back().lines) line.resize(tables.back().heads.size());
  }
  return tables;
}

std::string to_terminal(const std::vector<Table>& tables, const std::string& data_name) {
  std::vector<Table> shown = tables;
  std::string all;
  for (Table& table : shown) {
    if (data_name.empty() || table.heads.empty() || table.heads[0] == "data") continue;
    table.heads.insert(table.heads.begin(), "data");
    for (auto& line : table.lines) line.insert(line.begin(), data_name);
    if (!table.title.empty()) table.title = fmt::format("{}  {}", data_name, table.title);
    ++table.left;
  }
  std::map<std::vector<std::string>, std::vector<size_t>> columns;  // tables with the same heads are aligned
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

std::string to_terminal(const Json& record) {
  const std::string data = text(part(record, "data"), "name");
  const auto lines = [&](const std::vector<std::string>& sentences) {
    std::string text;
    for (const std::string& sentence : sentences) {
      text += data.empty() ? fmt::format("{}\n", sentence) : fmt::format("{}  {}\n", data, sentence);
    }
    return text;
  };
  const std::string answer = lines(texts(record, "answer")), remarked = lines(remarks(record));
  return fmt::format("{}\n{}{}{}{}{}", opening(record), answer, answer.empty() ? "" : "\n",
                     to_terminal(tables_of(record), data), remarked.empty() ? "" : "\n", remarked);
}

std::string markdown(const Json& record) {
  std::string all = fmt::format("{}. {}.\n", markdown_cell(opening(record)), markdown_cell(machine_line(record)));
  for (const std::string& sentence : texts(record, "answer")) all += fmt::format("\n**{}**\n", markdown_cell(sentence));
  for (const Table& table : tables_of(record)) {
    if (!table.title.empty()) all += fmt::format("\n**{}**\n", markdown_cell(table.title));
    all += fmt::format("\n{}", to_markdown(table));
  }
  for (const std::string& sentence : remarks(record)) all += fmt::format("\n{}\n", markdown_cell(sentence));
  return all;
}

std::string csv(const Json& record) {
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
