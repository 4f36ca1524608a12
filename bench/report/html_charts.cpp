#include "bench/report/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/report/record.h"
#include "bench/report/svg.h"
#include "engine/check.h"

namespace hs::bench::report {
namespace {

// The chart under a line that says what it is of.
std::string titled(const std::string& title, const std::string& chart) {
  return chart.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", escape(title), chart);
}

// A figure that there is not is "-".
std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.3g} %", share * 100) : "-"; }
std::string milliseconds(double value) {
  if (!std::isfinite(value)) return "-";
  return value < 1000 ? fmt::format("{:.3g} ms", value) : fmt::format("{:.3g} s", value / 1000);
}
std::string per_second(double value) { return std::isfinite(value) ? fmt::format("{:.0f}/s", value) : "-"; }
std::string time_of_call(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.4g} us", seconds * 1e6) : fmt::format("{:.4g} ms", seconds * 1e3);
}
std::string mebibytes(double value) { return fmt::format("{:g} MiB", value); }

// By this member, the largest first; what has none comes before all.
void sort_down(std::vector<const Json*>& items, const char* name) {
  std::ranges::stable_sort(items, std::greater(), [name](const Json* item) {
    const double value = number(*item, name);
    return std::isfinite(value) ? value : INFINITY;
  });
}

// The simple variant first, as the ladder goes; the one that training takes has another colour.
std::string kernels(const Json& record) {
  std::string html;
  for (const Json& kernel : objects(record, "kernels")) {
    std::vector<const Json*> ladder;
    for (const Json& variant : objects(kernel, "variants")) ladder.push_back(&variant);
    sort_down(ladder, "warm_seconds");
    std::vector<Bar> all;
    for (const Json* variant : ladder) {
      const double seconds = number(*variant, "warm_seconds"), flops = number(*variant, "share_of_peak_flops");
      const bool chosen = text(*variant, "variant") == text(kernel, "chosen"), computes = flops > 0;
      const std::string share = computes ? percent(flops) + " of the arithmetic"
                                         : percent(number(*variant, "share_of_peak_bytes")) + " of the memory";
      const std::vector<double> range = numbers(*variant, "warm_seconds_range");
      const bool timed = std::isfinite(seconds);
      all.push_back({text(*variant, "variant") + (chosen ? " *" : ""), seconds, range.size() == 2 ? range[0] : NAN,
                     range.size() == 2 ? range[1] : NAN,
                     timed ? fmt::format("{}, {}", time_of_call(seconds), share) : "wrong: not timed",
                     chosen ? "c2" : "c0"});
    }
    html += titled(fmt::format("{}, {}, {}", text(kernel, "slot"), text(kernel, "sizes"), text(kernel, "type")),
                   bars("seconds of a call", all));
  }
  if (html.empty()) return "";
  return section("The ladder of each kernel",
                 "<p>Time of a call with warm caches: the median of the rounds, and their range. Shorter is better; "
                 "* is the variant that training takes. The share is of what this machine reaches at best.</p>\n" +
                     html);
}

std::string name_of(const Json& row) {
  return fmt::format("{}, checkpoint {}, accumulate {:.0f}", text(row, "precision"), text(row, "checkpoint"),
                     number(row, "accumulate"));
}

// Live bytes by purpose, on top of each other, from the points of a row's timeline.
std::string live_bytes(const Json& row) {
  std::map<std::string, size_t> places;
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
  const Json& points = objects(part(row, "timeline"), "points");
  for (const Json& point : points) {
    const Json& live = part(point, "live");
    for (const auto& [purpose, bytes] : live.items()) {
      const auto [place, is_new] = places.try_emplace(purpose, names.size());
      if (is_new) {
        names.push_back(purpose);
        values.emplace_back();
      }
      values[place->second].push_back(number(live, purpose.c_str()) / (1 << 20));
    }
  }
  const auto whole = [&](const std::vector<double>& series) { return series.size() == points.size(); };
  if (!std::ranges::all_of(values, whole)) return "";
  return stacked("live bytes by purpose, " + name_of(row), names, values, "one step, from its first tensor to its last",
                 mebibytes);
}

std::string memory(const Json& record) {
  std::vector<Bar> peaks;
  std::string timelines;
  for (const Json& row : objects(record, "rows")) {
    const double bytes = number(row, "peak_bytes");
    if (std::isfinite(bytes)) {
      peaks.push_back({name_of(row), bytes, NAN, NAN,
                       fmt::format("{:.1f} MiB, {}", bytes / (1 << 20), milliseconds(number(row, "step_ms"))),
                       text(row, "checkpoint") == "off" ? "c7" : "c6"});
    }
    timelines += titled(name_of(row), live_bytes(row));
  }
  Series curve;
  for (const Json& point : objects(record, "curve")) {
    const double bytes = number(point, "peak_bytes"), time = number(point, "step_ms");
    if (std::isfinite(bytes) && std::isfinite(time)) curve.points.push_back({bytes / (1 << 20), time});
  }
  std::ranges::sort(curve.points, {}, &Point::x);
  return section("Peak bytes", bars("peak bytes", peaks)) + section("Memory by purpose over one step", timelines) +
         section("Bytes against time", curve.points.empty()
                                           ? ""
                                           : lines("milliseconds of a step against its peak", {curve},
                                                   "peak of memory, from everything computed again to everything kept",
                                                   "milliseconds of a step", mebibytes, milliseconds));
}

// [lane, batch, begin_ms, end_ms]
bool is_span(const Json& span) {
  return span.is_array() && span.size() == 4 && span[0].is_string() && span[1].is_number() && span[2].is_number() &&
         span[3].is_number();
}

std::string loading_timeline(const Json& timeline) {
  std::vector<Lane> lanes;
  for (const Json& span : list(timeline, "spans")) {
    if (!is_span(span)) fail(ExitCode::bad_input, "spans: expected lists of a lane, a batch, its begin and its end");
    const std::string lane = span[0];
    if (lanes.empty() || lanes.back().name != lane) lanes.push_back({lane, {}});
    if (span[3] >= span[2]) {
      lanes.back().spans.push_back({span[2], span[3], fmt::format("batch {:.0f}", span[1].get<double>())});
    }
  }
  return titled(text(timeline, "name"), gantt("who worked when", lanes, milliseconds));
}

std::string loader(const Json& record) {
  std::vector<Bar> formats;
  for (const Json& format : objects(record, "formats")) {
    const double warm = number(format, "warm_samples_per_second");
    formats.push_back({text(format, "name"), warm, NAN, NAN, per_second(warm), "c0"});
  }
  std::vector<std::pair<std::string, std::vector<Bar>>> settings;  // of each format
  for (const Json& row : objects(record, "rows")) {
    if (settings.empty() || settings.back().first != text(row, "format")) settings.push_back({text(row, "format"), {}});
    const double rate = number(row, "samples_per_second");
    settings.back().second.push_back(
        {fmt::format("cache {}, {:.0f} workers, {:.0f} ahead", text(row, "cache"), number(row, "workers"),
                     number(row, "prefetch")),
         rate, NAN, NAN, fmt::format("{}, stall {}", per_second(rate), percent(number(row, "stall_share"))),
         number(row, "stall_share") < 0.01 ? "c2" : "c0"});
  }
  std::string rates, timelines;
  for (const auto& [format, all] : settings) rates += titled(format, bars("samples per second", all));
  for (const Json& timeline : objects(record, "timelines")) timelines += loading_timeline(timeline);
  return section("Formats",
                 titled("samples per second, one thread without a loader", bars("samples per second", formats))) +
         section("Settings", rates.empty() ? ""
                                           : "<p>Samples per second of warm epochs. Longer is better; green: with the "
                                             "work of a step beside it, under 1 % of the time is waiting.</p>\n" +
                                                 rates) +
         section("Loading and computing",
                 timelines.empty()
                     ? ""
                     : "<p>A source that sleeps and a step that sleeps; a colour is a batch.</p>\n" + timelines);
}

// What f16 lost: zeros with and without loss scaling, of each gradient of the ops' outputs.
std::string gradients(const Json& record) {
  std::vector<Bar> all;
  const Json& rows = objects(record, "rows");
  std::vector<const Json*> gradients;  // of each row
  for (const Json& row : rows) gradients.push_back(&objects(row, "gradients"));
  for (size_t i = 0; !rows.empty() && i < gradients[0]->size(); ++i) {
    for (size_t row = 0; row < rows.size(); ++row) {
      if (gradients[row]->size() != gradients[0]->size()) continue;
      const Json& gradient = (*gradients[row])[i];
      if (text(gradient, "kind") != "activation") continue;
      const double zero = number(gradient, "zero");
      all.push_back({fmt::format("{}, {}", text(gradient, "name"), text(rows[row], "name")), zero, NAN, NAN,
                     percent(zero), row == 0 ? "c0" : "c1"});
    }
  }
  const std::string chart = bars("share of zeros", all);
  return section("Gradients that are zero",
                 chart.empty()
                     ? ""
                     : "<p>Of the values of each gradient in f16, all steps together. ReLU, pooling and dropout "
                       "make most of the zeros; those without scaling on top of them, f16 lost.</p>\n" +
                           chart);
}

std::string explain(const Json& record) {
  constexpr size_t most = 20;
  const Json& calls = objects(record, "calls");
  std::vector<const Json*> longest;
  std::vector<Lane> lanes;
  Series live;
  for (const Json& call : calls) {
    longest.push_back(&call);
    const double bytes = number(call, "live_bytes");
    if (std::isfinite(bytes)) live.points.push_back({static_cast<double>(longest.size()), bytes / (1 << 20)});
    const double begin = number(call, "begin_ms"), length = number(call, "milliseconds");
    if (!std::isfinite(begin + length)) continue;  // of a record of an older program
    if (lanes.empty() || lanes.back().name != text(call, "phase")) lanes.push_back({text(call, "phase"), {}});
    lanes.back().spans.push_back({begin, begin + length, text(call, "phase")});
  }
  sort_down(longest, "milliseconds");
  if (longest.size() > most) longest.resize(most);
  static const std::map<std::string, const char*> colours = {{"forward", "c0"}, {"backward", "c1"}, {"update", "c2"}};
  std::vector<Bar> all;
  for (const Json* call : longest) {
    const auto colour = colours.find(text(*call, "phase"));
    const double length = number(*call, "milliseconds");
    const std::vector<std::string> shapes = texts(*call, "shapes");
    all.push_back({fmt::format("{} {}", text(*call, "kernel"), shapes.empty() ? "" : shapes[0]), length, NAN, NAN,
                   fmt::format("{}, {}", milliseconds(length), text(*call, "phase")),
                   colour == colours.end() ? "c7" : colour->second});
  }
  return section(fmt::format("The longest of {} kernels", calls.size()), bars("milliseconds", all)) +
         section("The step", gantt("kernels of one step", lanes, milliseconds)) +
         section("Live memory", live.points.empty()
                                    ? ""
                                    : lines(
                                          "live memory after each kernel", {live}, "kernel", "MiB after it",
                                          [](double i) { return fmt::format("{:.0f}", i); }, mebibytes));
}

std::string doctor(const Json& record) {
  const Json& verdict = part(record, "verdict");
  std::vector<Bar> parts;
  for (const Json& row : objects(record, "rows")) {
    const double length = number(row, "milliseconds");
    parts.push_back({text(row, "name"), length, NAN, NAN,
                     fmt::format("{}, {}", milliseconds(length), percent(number(row, "share"))), "c0"});
  }
  return section("Verdict", verdict.is_object()
                                ? fmt::format("<p><strong>{}</strong>: {}.</p>\n<p>Try next: {}.</p>\n",
                                              escape(text(verdict, "name")), escape(text(verdict, "reason")),
                                              escape(text(verdict, "advice")))
                                : "") +
         section("Parts of a step", bars("milliseconds", parts));
}

}  // namespace

std::string section(const std::string& title, const std::string& inside) {
  return inside.empty() ? "" : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape(title), inside);
}

std::string command_charts(const Json& record) {
  static const std::map<std::string, std::string (*)(const Json&)> charts = {
      {"gemm", kernels},  {"conv", kernels},     {"ops", kernels},     {"memory", memory},
      {"loader", loader}, {"scaler", gradients}, {"explain", explain}, {"doctor", doctor}};
  const auto found = charts.find(text(record, "command"));
  return found == charts.end() ? "" : found->second(record);
}

}  // namespace hs::bench::report
