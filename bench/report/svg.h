// Charts as HTML fragments. The drawing is inline SVG that stretches with the page, so nothing in it is text; labels
// are HTML around it and stay readable at any width. Colours are the classes c0, c1, ... of the page's style sheet.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hs::bench::report {

// & < > " ' as character references, so that any text can stand in an element or an attribute.
std::string escape(const std::string& text);

using Format = std::function<std::string(double)>;

struct Bar {
  std::string label;
  double value;
  double low, high;    // of its interval; NaN: none
  std::string text;    // beside the bar
  std::string colour;  // class
};
// A horizontal bar per line from 0 to the largest value, and a whisker for its interval.
std::string bars(const std::string& title, const std::vector<Bar>& all);

struct Point {
  double x, y;
};
struct Series {
  std::string name;
  std::vector<Point> points;
};
// Lines with a dot at each point, and a dashed line at `mark`.
std::string lines(const std::string& title, const std::vector<Series>& all, const std::string& x_name,
                  const std::string& y_name, const Format& x_format, const Format& y_format,
                  std::optional<double> mark = {}, const std::string& mark_name = "");

// Areas on top of each other: series s adds values[s][i] at the i-th place.
std::string stacked(const std::string& title, const std::vector<std::string>& names,
                    const std::vector<std::vector<double>>& values, const std::string& x_name, const Format& y_format);

struct Span {
  double start, end;
  std::string name;
};
struct Lane {
  std::string name;
  std::vector<Span> spans;
};
// Who worked when: a line per lane, a block per span.
std::string gantt(const std::string& title, const std::vector<Lane>& lanes, const Format& x_format);

}  // namespace hs::bench::report
