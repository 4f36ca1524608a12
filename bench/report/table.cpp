#include "bench/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "bench/report/record.h"

namespace hs::bench::report {
namespace {

using Cell = std::function<std::string(const Json& row)>;
struct Column {
  const char* head;
  Cell cell;  // empty: there is no figure
};

// Three digits or more, as many as the value has before the point.
std::string rounded(double value) {
  if (!std::isfinite(value)) return "";
  return fmt::format("{:.{}f}", value, std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0);
}
std::string seconds(double value) { return std::isfinite(value) ? fmt::format("{:.2f}", value) : ""; }
std::string percent(double share, int digits) {
  return std::isfinite(share) ? fmt::format("{:.{}f} %", share * 100, digits) : "";
}
std::string between(double low, double high) {
  return std::isfinite(low) ? fmt::format("{:.2f} - {:.2f}", low, high) : "";
}

std::string remark(const Json& row) {
  if (row.contains("error")) return "failed: " + text(row, "error");
  const double bytes = number(row, "bytes_ratio");
  if (!flag(row, "for_memory") || !std::isfinite(bytes)) return text(row, "verdict");
  return fmt::format("{}; {:+.0f} % bytes", text(row, "verdict"), (bytes - 1) * 100);
}

const std::vector<Column> columns = {
    {"row",
     [](const Json& row) { return text(row, "group") == "cumulative" ? "+ " + text(row, "name") : text(row, "name"); }},
    {"seconds", [](const Json& row) { return seconds(number(row, "seconds")); }},
    {"95 % interval", [](const Json& row) { return between(number(row, "seconds_low"), number(row, "seconds_high")); }},
    {"samples/s", [](const Json& row) { return rounded(number(row, "samples_per_second")); }},
    {"speed-up",
     [](const Json& row) {
       const double value = number(row, "speed_up");
       return std::isfinite(value) ? fmt::format("{:.2f}x", value) : "";
     }},
    {"ratio",
     [](const Json& row) {
       const double value = number(row, "ratio");
       return std::isfinite(value) ? fmt::format("{:.2f}", value) : "";
     }},
    {"its interval", [](const Json& row) { return between(number(row, "ratio_low"), number(row, "ratio_high")); }},
    {"accuracy", [](const Json& row) { return percent(number(row, "test_accuracy"), 2); }},
    {"peak MiB",
     [](const Json& row) {
       const double bytes = number(row, "peak_bytes");
       return std::isfinite(bytes) ? fmt::format("{:.1f}", bytes / (1 << 20)) : "";
     }},
    {"stall", [](const Json& row) { return percent(number(row, "stall_share"), 1); }},
    {"to target s", [](const Json& row) { return seconds(number(part(row, "target"), "seconds")); }},
    {"evaluation s", [](const Json& row) { return seconds(number(part(row, "target"), "evaluation_seconds")); }},
    {"reached", [](const Json& row) { return percent(number(part(row, "target"), "reached_share"), 0); }},
    {"cost per run", [](const Json& row) { return fmt::format("{:.3g}", number(part(row, "cost"), "per_run")); }},
    {"cost to target", [](const Json& row) { return fmt::format("{:.3g}", number(part(row, "cost"), "to_target")); }},
    {"joules", [](const Json& row) { return rounded(number(row, "energy_joules")); }},
    {"remark", remark},
};

// Columns of the CSV that are members of the row, or of one of its objects.
struct RawColumn {
  const char* head;
  const char* object;  // nullptr: the row itself
  const char* member;
};
constexpr RawColumn raw_columns[] = {
    {"name", nullptr, "name"},
    {"group", nullptr, "group"},
    {"seconds", nullptr, "seconds"},
    {"seconds_low", nullptr, "seconds_low"},
    {"seconds_high", nullptr, "seconds_high"},
    {"samples_per_second", nullptr, "samples_per_second"},
    {"speed_up", nullptr, "speed_up"},
    {"speed_up_low", nullptr, "speed_up_low"},
    {"speed_up_high", nullptr, "speed_up_high"},
    {"verdict", nullptr, "verdict"},
    {"stall_share", nullptr, "stall_share"},
    {"test_accuracy", nullptr, "test_accuracy"},
    {"final_loss", nullptr, "final_loss"},
    {"peak_bytes", nullptr, "peak_bytes"},
    {"peak_resident_bytes", nullptr, "peak_resident_bytes"},
    {"energy_joules", nullptr, "energy_joules"},
    {"target_accuracy", "target", "accuracy"},
    {"target_reached_share", "target", "reached_share"},
    {"target_seconds", "target", "seconds"},
    {"target_evaluation_seconds", "target", "evaluation_seconds"},
    {"cost_per_run", "cost", "per_run"},
    {"cost_to_target", "cost", "to_target"},
    {"error", nullptr, "error"},
    {"ratio", nullptr, "ratio"},
    {"ratio_low", nullptr, "ratio_low"},
    {"ratio_high", nullptr, "ratio_high"},
};

// Text that a spreadsheet would compute. A number is one whatever its sign.
bool is_formula(const std::string& cell) {
  if (cell.empty() || std::string_view("=+-@").find(cell[0]) == std::string_view::npos) return false;
  double value = 0;
  const char* end = cell.data() + cell.size();
  return std::from_chars(cell.data(), end, value).ptr != end;
}

}  // namespace

std::string mebibytes(size_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }

bool is_not_finite(const std::string& cell) {
  const char *begin = cell.data() + cell.starts_with('+'), *end = cell.data() + cell.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && !std::isfinite(value) && (stop == end || *stop == ' ');
}

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
  for (const char c : cell) {
    if (c == '<') {
      escaped += "&lt;";  // "\\<!-- results:end -->" would still hold the marker
    } else {
      if (c == '|' || c == '[' || c == '\\') escaped += '\\';
      escaped += c == '\n' ? ' ' : c;
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
  const std::string cell = value.is_string() ? value.get<std::string>() : value.dump();
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

Table results_table(const Json& record) {
  Table table;
  const Json& rows = objects(record, "rows");
  table.lines.resize(rows.size());
  for (const Column& column : columns) {
    table.heads.emplace_back(column.head);
    for (size_t i = 0; i < table.lines.size(); ++i) {
      const std::string cell = column.cell(rows[i]);
      table.lines[i].push_back(cell == "nan" ? "" : cell);
    }
  }
  return without_empty_columns(table);
}

std::vector<std::string> remarks(const Json& record) {
  std::vector<std::string> sentences;
  std::string for_memory;
  for (const Json& row : objects(record, "rows")) {
    if (text(row, "group") == "alone" && flag(row, "for_memory")) {
      for_memory += (for_memory.empty() ? "" : ", ") + text(row, "name");
    }
  }
  if (!for_memory.empty()) {
    sentences.push_back(for_memory + ": made to save memory, to be judged by peak bytes and not by seconds.");
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
  std::vector<std::string> parts = {text(environment, "cpu"), fmt::format("{:.0f} cores", number(environment, "cores")),
                                    fmt::format("{:.0f} threads", number(environment, "threads"))};
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

Json csv_row(const Json& row) {
  Json values = Json::object();
  for (const RawColumn& column : raw_columns) {
    values[column.head] = member(column.object ? part(row, column.object) : row, column.member);
  }
  return values;
}

}  // namespace hs::bench::report
