#include "bench/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace hs::bench::report {
namespace {

constexpr size_t colours = 8;  // in the style sheet
std::string colour(size_t index) { return fmt::format("c{}", index % colours); }

// Drawings are 100 wide and high; the page stretches them.
std::string drawing(const std::string& title, const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{}</svg>",
      escape(title), inside);
}

// Values of any record: the differences and sums of what is drawn must be finite too.
bool is_drawable(double value) { return std::abs(value) <= 1e300; }

struct Axis {
  double low, high, step;
  double percent(double value) const { return (value - low) / (high - low) * 100; }
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    for (int i = 0; i <= std::lround((high - low) / step); ++i) ticks.push_back(low + i * step);
    return ticks;
  }
};

// Round ends and steps of 1, 2 or 5 times a power of ten, about four of them. REQUIRES: both are drawable
Axis axis(double low, double high) {
  // Ends that are too close to each other leave no numbers for the ticks between them.
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > std::max(size * 1e-9, 1e-290))) high = low + (size > 1e9 ? size : 1);
  const double rough = (high - low) / 4, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

std::string legend(const std::vector<std::string>& names) {
  if (names.size() < 2) return "";
  std::string items;
  for (size_t i = 0; i < names.size(); ++i) {
    items += fmt::format("<li><span class=\"swatch {}\"></span>{}</li>", colour(i), escape(names[i]));
  }
  return "<ul class=\"legend\">" + items + "</ul>";
}

// A drawing with its axes: y to the left, x below. An empty x_format leaves the ticks of x out.
std::string plot(const std::string& title, const Axis& x, const Axis& y, const std::string& x_name,
                 const std::string& y_name, const Format& x_format, const Format& y_format, const std::string& inside,
                 const std::string& below) {
  std::string grid, y_labels, x_labels;
  for (const double tick : y.ticks()) {
    const double at = 100 - y.percent(tick);
    grid += fmt::format("<path class=\"grid\" d=\"M0 {:.2f}H100\"/>", at);
    y_labels += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", at, escape(y_format(tick)));
  }
  for (const double tick : x_format ? x.ticks() : std::vector<double>()) {
    x_labels += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", x.percent(tick), escape(x_format(tick)));
  }
  return fmt::format(
      "<figure class=\"plot\"><p class=\"yname\">{}</p><div class=\"ys\">{}</div><div class=\"area\">{}</div>"
      "<div class=\"xs\">{}</div><p class=\"xname\">{}</p>{}</figure>\n",
      escape(y_name), y_labels, drawing(title, grid + inside), x_labels, escape(x_name), below);
}

}  // namespace

std::string escape(const std::string& text) {
  static const std::map<char, std::string> references = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string escaped;
  for (const char c : text) {
    const auto found = references.find(c);
    found == references.end() ? escaped += c : escaped += found->second;
  }
  return escaped;
}

std::string bars(const std::string& title, const std::vector<Bar>& all) {
  double largest = 0;
  for (const Bar& bar : all) {
    if (is_drawable(bar.value)) largest = std::max({largest, bar.value, is_drawable(bar.high) ? bar.high : 0});
  }
  if (largest <= 0) return "";
  std::string text = "<figure class=\"bars\">\n";
  for (const Bar& bar : all) {
    std::string inside;
    if (is_drawable(bar.value)) {
      inside = fmt::format("<rect class=\"{}\" x=\"0\" y=\"15\" width=\"{:.2f}\" height=\"70\"/>", bar.colour,
                           bar.value / largest * 100);
    }
    if (is_drawable(bar.low) && is_drawable(bar.high)) {
      const double low = bar.low / largest * 100, high = bar.high / largest * 100;
      inside +=
          fmt::format("<path class=\"whisker\" d=\"M{0:.2f} 50H{1:.2f}M{0:.2f} 30V70M{1:.2f} 30V70\"/>", low, high);
    }
    text += fmt::format("<span class=\"label\">{}</span>{}<span class=\"value\">{}</span>\n", escape(bar.label),
                        drawing(title + ": " + bar.label, inside), escape(bar.text));
  }
  return text + "</figure>\n";
}

std::string lines(const std::string& title, const std::vector<Series>& given, const std::string& x_name,
                  const std::string& y_name, const Format& x_format, const Format& y_format, std::optional<double> mark,
                  const std::string& mark_name) {
  std::vector<Series> all = given;
  for (Series& series : all) {
    std::erase_if(series.points, [](const Point& point) { return !is_drawable(point.x) || !is_drawable(point.y); });
  }
  if (mark && !is_drawable(*mark)) mark.reset();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double left = infinity, right = -infinity, low = infinity, high = -infinity;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      left = std::min(left, point.x), right = std::max(right, point.x);
      low = std::min(low, point.y), high = std::max(high, point.y);
    }
  }
  if (left > right) return "";
  if (mark) low = std::min(low, *mark), high = std::max(high, *mark);
  const Axis x = axis(std::min(left, 0.0), right), y = axis(low, high);
  std::string inside, below;
  if (mark) {
    inside += fmt::format("<path class=\"mark\" d=\"M0 {:.2f}H100\"/>", 100 - y.percent(*mark));
    below = fmt::format("<p class=\"note\">Dashed: {}</p>", escape(mark_name));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i) {
    std::string path, dots;
    for (const Point& point : all[i].points) {
      const std::string at = fmt::format("{:.2f} {:.2f}", x.percent(point.x), 100 - y.percent(point.y));
      path += (path.empty() ? "M" : "L") + at;
      dots += "M" + at + "h0";
    }
    inside +=
        fmt::format("<path class=\"line {0}\" d=\"{1}\"/><path class=\"dots {0}\" d=\"{2}\"/>", colour(i), path, dots);
    names.push_back(all[i].name);
  }
  return plot(title, x, y, x_name, y_name, x_format, y_format, inside, legend(names) + below);
}

std::string stacked(const std::string& title, const std::vector<std::string>& names,
                    const std::vector<std::vector<double>>& values, const std::string& x_name, const Format& y_format) {
  const size_t places = values.empty() ? 0 : values[0].size();
  if (places < 2) return "";
  std::vector<double> floor(places, 0);
  double highest = 0;
  for (size_t i = 0; i < places; ++i) {
    double sum = 0;
    for (const std::vector<double>& series : values) sum += series[i];
    if (!is_drawable(sum)) return "";
    highest = std::max(highest, sum);
  }
  const Axis y = axis(0, highest), x = {0, static_cast<double>(places - 1), 1};
  std::string inside;
  for (size_t s = 0; s < values.size(); ++s) {
    std::string outline;  // along its lower edge, and back along its upper one
    const auto add = [&](size_t i) {
      outline += fmt::format("{}{:.2f} {:.2f}", outline.empty() ? "M" : "L", x.percent(static_cast<double>(i)),
                             100 - y.percent(floor[i]));
    };
    for (size_t i = 0; i < places; ++i) add(i);
    for (size_t i = places; i-- > 0;) {
      floor[i] += values[s][i];
      add(i);
    }
    inside += fmt::format("<path class=\"{}\" d=\"{}Z\"/>", colour(s), outline);
  }
  return plot(title, x, y, x_name, "", {}, y_format, inside, legend(names));
}

namespace {

// In the order in which they begin. Of more than there are colours those that took the most time, and a last place for
// the others.
std::vector<std::string> names_of(const std::vector<Lane>& lanes) {
  std::map<std::string, double> totals, starts;
  for (const Lane& lane : lanes) {
    for (const Span& span : lane.spans) {
      totals[span.name] += span.end - span.start;
      const auto start = starts.try_emplace(span.name, span.start).first;
      start->second = std::min(start->second, span.start);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, total] : totals) names.push_back(name);
  const size_t all = names.size(), shown = all <= colours ? all : colours - 1;
  std::ranges::stable_sort(names, std::greater(), [&](const std::string& name) { return totals[name]; });
  names.resize(shown);
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return starts[name]; });
  if (shown < all) names.push_back(fmt::format("{} others", all - shown));
  return names;
}

}  // namespace

std::string gantt(const std::string& title, const std::vector<Lane>& lanes, const Format& x_format) {
  double start = std::numeric_limits<double>::infinity(), end = -start;
  for (const Lane& lane : lanes) {
    for (const Span& span : lane.spans) start = std::min(start, span.start), end = std::max(end, span.end);
  }
  const double length = end - start;
  if (!(length > 0) || !is_drawable(length)) return "";
  const std::vector<std::string> names = names_of(lanes);
  std::string text = "<figure class=\"bars gantt\">\n";
  for (const Lane& lane : lanes) {
    std::string inside;
    for (const Span& span : lane.spans) {
      const auto index = static_cast<size_t>(std::ranges::find(names, span.name) - names.begin());
      inside += fmt::format(
          "<rect class=\"{}\" x=\"{:.3f}\" y=\"10\" width=\"{:.3f}\" height=\"80\"><title>{}: {}</title></rect>",
          colour(std::min(index, names.size() - 1)), (span.start - start) / length * 100,
          (span.end - span.start) / length * 100, escape(span.name), escape(x_format(span.end - span.start)));
    }
    text += fmt::format("<span class=\"label\">{}</span>{}<span class=\"value\"></span>\n", escape(lane.name),
                        drawing(title + ": " + lane.name, inside));
  }
  return text + legend(names) +
         fmt::format("<p class=\"note\">The width is {}.</p></figure>\n", escape(x_format(length)));
}

}  // namespace hs::bench::report
