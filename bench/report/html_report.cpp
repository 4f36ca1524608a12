#include "bench/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/report/checklist.h"
#include "bench/report/html_charts.h"
#include "bench/report/html_style.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "bench/report/svg.h"
#include "bench/report/table.h"

namespace hs::bench::report {
namespace {

std::string seconds_text(double value) { return fmt::format("{:.3g} s", value); }
std::string milliseconds_text(double value) { return fmt::format("{:.2f} ms", value * 1e3); }
std::string percent_text(double value) { return fmt::format("{:.4g} %", value * 100); }
std::string mebibytes_text(double value) { return fmt::format("{:.3g} MiB", value / (1 << 20)); }

std::string label_of(const Json& row) {
  return text(row, "group") == "cumulative" ? "+ " + text(row, "name") : text(row, "name");
}

std::string time_text(const Json& row) {
  if (row.contains("error")) return "failed";
  std::string words = seconds_text(number(row, "seconds"));
  if (const double speed_up = number(row, "speed_up"); std::isfinite(speed_up)) {
    words += fmt::format(", {:.2f}x{}", speed_up, text(row, "verdict") == "within noise" ? ", noise" : "");
  }
  if (const double ratio = number(row, "ratio"); std::isfinite(ratio)) words += fmt::format(", ratio {:.2f}", ratio);
  return words;
}

// Of the rows of these groups.
std::string time_bars(const Json& record, const std::vector<std::string>& groups, const std::string& title) {
  std::vector<Bar> all;
  for (const Json& row : objects(record, "rows")) {
    const std::string group = text(row, "group");
    if (std::ranges::find(groups, group) == groups.end()) continue;
    const char* colour = group == "baseline" || group == "peer" ? "c7" : flag(row, "for_memory") ? "c6" : "c0";
    all.push_back({label_of(row), number(row, "seconds"), number(row, "seconds_low"), number(row, "seconds_high"),
                   time_text(row), colour});
  }
  return bars(title, all);
}

std::string times(const Json& record) {
  if (text(record, "command") == "peers") {
    return "<p>Seconds of training, the median of the runs and its 95 % interval. Shorter is better; halfstep's own "
           "rows "
           "have another colour.</p>\n" +
           time_bars(record, {"halfstep", "peer"}, "seconds of training");
  }
  if (text(record, "command") != "techniques") return time_bars(record, {""}, "seconds of training");
  std::string html =
      "<p>Seconds of training, the median of the runs and its 95 % interval. Shorter is better; techniques "
      "that are made to save memory have another colour.</p>\n<p class=\"note\">Each alone:</p>\n";
  html += time_bars(record, {"baseline", "alone"}, "alone");
  const std::string together = time_bars(record, {"baseline", "cumulative"}, "together");
  return html + "<p class=\"note\">Together with all before it:</p>\n" + together;
}

std::string memory_bars(const Json& record) {
  std::vector<Bar> all;
  for (const Json& row : objects(record, "rows")) {
    const double bytes = number(row, "peak_bytes");
    if (!std::isfinite(bytes)) continue;
    const char* colour = text(row, "group") == "baseline" ? "c7" : "c6";
    all.push_back({label_of(row), bytes, NAN, NAN, mebibytes_text(bytes), colour});
  }
  const std::string chart = bars("peak bytes", all);
  return chart.empty()
             ? ""
             : "<p>The most that tensors took at a time; by this the techniques for memory are to be judged.</p>\n" +
                   chart;
}

std::string html_line(const std::vector<std::string>& cells, size_t left, const char* tag) {
  std::string html = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    html += fmt::format("<{0}{1}>{2}</{0}>", tag, i > 0 && i < left ? " class=\"left\"" : "", escape(cells[i]));
  }
  return html + "</tr>\n";
}

std::string html_table(const Table& table) {
  std::string html = "<div class=\"wide\"><table>\n" + html_line(table.heads, table.left, "th");
  for (const auto& line : table.lines) html += html_line(line, table.left, "td");
  return html + "</table></div>\n";
}

std::string results(const Json& record) {
  std::string html;
  for (const Table& table : tables_of(record)) {
    if (table.lines.empty()) continue;
    if (!table.title.empty()) html += "<h3>" + escape(table.title) + "</h3>\n";
    html += html_table(table);
  }
  for (const std::string& sentence : remarks(record)) html += "<p class=\"note\">" + escape(sentence) + "</p>\n";
  return html;
}

// Of a run: its test accuracy after each epoch against the seconds of training until then.
std::vector<Point> accuracy_points(const Json& epochs) {
  std::vector<Point> points;
  double seconds = 0;
  for (const Json& epoch : epochs) {
    seconds += number(epoch, "seconds");
    if (const double share = number(epoch, "test_accuracy"); !std::isnan(share)) points.push_back({seconds, share});
  }
  return points;
}

// `train`: every run. `techniques`: the first run of the baseline, of each technique alone, and of all together.
std::string accuracy(const Json& record) {
  std::vector<Series> all;
  const Json& rows = objects(record, "rows");
  for (const Json& row : rows) {
    if (text(row, "group").empty()) {
      for (const Json& run : objects(row, "runs")) {
        all.push_back({fmt::format("seed {:.0f}", number(run, "seed")), accuracy_points(objects(run, "epochs"))});
      }
    } else if (text(row, "group") != "cumulative" || &row == &rows.back()) {
      const bool together = text(row, "group") == "cumulative";
      all.push_back({together ? "all together" : text(row, "name"), accuracy_points(objects(row, "epochs"))});
    }
  }
  std::erase_if(all, [](const Series& series) { return series.points.empty(); });
  const double target = number(part(record, "config"), "target_accuracy");
  const char* x_name = text(record, "command") == "techniques" ? "seconds of training, the first run of each row"
                                                               : "seconds of training";
  return lines("test accuracy against seconds of training", all, x_name, "test accuracy", seconds_text, percent_text,
               std::isfinite(target) ? std::optional(target) : std::nullopt, "the target, " + percent_text(target));
}

std::string memory_timeline(const Json& row) {
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
  for (const Json& purpose : objects(part(row, "step"), "purposes")) {
    names.push_back(text(purpose, "name"));
    std::vector<double>& mebibytes = values.emplace_back(numbers(purpose, "live_bytes"));
    for (double& value : mebibytes) value /= 1 << 20;
  }
  const auto same = [&](const std::vector<double>& series) { return series.size() == values[0].size(); };
  if (!std::ranges::all_of(values, same)) return "";
  return stacked("live bytes by purpose", names, values, "one step, from its first tensor to its last",
                 [](double value) { return fmt::format("{:g} MiB", value); });
}

std::string step_timeline(const Json& row) {
  std::vector<Lane> lanes;
  for (const Json& lane : objects(part(row, "step"), "lanes")) {
    Lane& one = lanes.emplace_back(Lane{text(lane, "name"), {}});
    for (const Json& span : objects(lane, "spans")) {
      const double start = number(span, "start"), end = number(span, "end");
      if (end >= start) one.spans.push_back({start, end, text(span, "name")});
    }
  }
  return gantt("one step", lanes, milliseconds_text);
}

std::string parts(const Json& row) {
  std::vector<Bar> all;
  const Json& means = part(row, "parts");
  for (const auto& [name, value] : means.items()) {
    const double seconds = number(means, name.c_str());
    if (seconds > 0) all.push_back({name, seconds, NAN, NAN, seconds_text(seconds), name == "wait" ? "c1" : "c0"});
  }
  return bars("seconds by part", all);
}

// A chart of the only row, or of the baseline and of all techniques together.
std::string of_ends(const Json& record, std::string (*chart)(const Json& row)) {
  const Json& rows = objects(record, "rows");
  std::string html;
  for (const Json& row : rows) {
    if (&row != &rows.front() && &row != &rows.back()) continue;
    const std::string one = chart(row);
    const bool together = &row != &rows.front();
    const std::string label = together ? "all together, the last row" : label_of(row);
    if (!one.empty()) html += "<p class=\"note\">" + escape(label) + ":</p>\n" + one;
  }
  return html;
}

std::string loss_scale(const Json& record) {
  std::vector<Series> all;
  for (const Json& row : objects(record, "rows")) {
    const Json& scale = part(row, "scale");
    if (scale.is_null()) continue;
    Series& series = all.emplace_back(Series{text(row, "name"), {{0, std::log2(number(scale, "first"))}}});
    for (const Json& change : objects(scale, "changes")) {
      const double step = number(change, "after_step");
      series.points.push_back({step, series.points.back().y});
      series.points.push_back({step, std::log2(number(change, "scale"))});
    }
    series.points.push_back({number(row, "steps"), series.points.back().y});
  }
  const auto power = [](double exponent) {
    return exponent == std::floor(exponent) ? fmt::format("2^{:g}", exponent) : "";
  };
  return lines(
      "loss scale", all, "step", "loss scale", [](double step) { return fmt::format("{:.0f}", step); }, power);
}

std::string checks(const Json& record) {
  std::string html = "<ul class=\"checks\">\n";
  for (const Check& check : checklist(record)) {
    const char* word = check.answer == Check::Answer::yes  ? "yes"
                       : check.answer == Check::Answer::no ? "no"
                                                           : "unknown";
    html += fmt::format("<li><span class=\"{0}\">{0}</span><span>{1}</span><small>{2}</small></li>\n", word,
                        escape(check.question), escape(check.why));
  }
  return html + "</ul>\n";
}

std::string warnings(const Json& record) {
  std::string made, avoided;
  for (const Mistake& mistake : mistakes(record)) {
    const std::string item =
        fmt::format("<li><span class=\"{}\">{}</span><span>{}{}</span><small>{}</small></li>\n",
                    mistake.made ? "no" : "yes", mistake.made ? "warning" : "fine", escape(mistake.name),
                    mistake.of_the_article ? "" : " <em class=\"soft\">(ours)</em>", escape(mistake.why));
    (mistake.made ? made : avoided) += item;
  }
  return "<p>The article's seven, and those that this project adds (ours).</p>\n<ul class=\"checks\">\n" + made +
         avoided + "</ul>\n";
}

std::string facts(const Json& object) {
  std::string html = "<table class=\"facts\">\n";
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    const std::string shown =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(shown));
  }
  return html + "</table>\n";
}

std::string title_of(const Json& record) {
  static const std::map<std::string, std::string> titles = {
      {"techniques", "What each technique buys"},      {"train", "A training run"},
      {"scaler", "What loss scaling is for"},          {"peers", "Other engines on the same training"},
      {"memory", "Where the bytes of a step go"},      {"loader", "How fast batches are loaded"},
      {"gemm", "Every variant of the matrix product"}, {"conv", "Every variant of the convolution"},
      {"ops", "Every variant of the other kernels"},   {"explain", "One training step, kernel by kernel"},
      {"doctor", "What training is bound by"},         {"compare", "Two records compared"}};
  const auto found = titles.find(text(record, "command"));
  return found == titles.end() ? "A measurement" : found->second;
}

}  // namespace

std::string html_report(const Json& given) {
  const Json record = printable(given);
  const Json& data = part(record, "data");
  const bool timed = text(record, "command") == "train" || text(record, "command") == "techniques";
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>halfstep: {0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n<p>{2}</p>\n<p class=\"soft\">{3}</p>\n",
      escape(title_of(record)), html_style, escape(opening(record)), escape(machine_line(record)));
  if (flag(data, "synthetic")) {
    html += "<p class=\"synthetic\">These are synthetic digits: the accuracies say nothing about MNIST.</p>\n";
  }
  if (text(record, "command") == "peers") html += section("Time", times(record));
  if (timed) {
    html += section("Time", times(record)) + section("Figures", results(record));
    html += section("Accuracy against time", accuracy(record));
    html += section("Memory", memory_bars(record));
    html += section("Where the seconds went", of_ends(record, parts));
  } else {
    html += command_charts(record);
  }
  html += section("Memory by purpose over one step", of_ends(record, memory_timeline));
  html += section("Where a step's time goes", of_ends(record, step_timeline));
  html += section("Loss scale", loss_scale(record));
  if (timed) {
    html += section("Common mistakes", warnings(record)) + section("Checklists", checks(record));
  } else {
    html += section("Figures", results(record));
  }
  html += section("Settings", facts(part(record, "config")));
  html += section("Machine and build", facts(part(record, "environment")));
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace hs::bench::report
