// Photographs of digits, made up: ink on paper or chalk on a board, held at a slant, in shadows and between ruled
// lines.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "data/formats/image_file.h"
#include "engine/random.h"

namespace hs::test {

using Point = std::array<double, 2>;  // to the right, down; a digit fills 0 to 100
using Stroke = std::vector<Point>;

// A part of an ellipse, from one angle to another, in degrees: 0 is to the right, 90 down.
inline Stroke arc(Point middle, Point radii, double from, double to) {
  Stroke stroke;
  for (int i = 0; i <= 24; ++i) {
    const double angle = (from + (to - from) * i / 24) * std::numbers::pi / 180;
    stroke.push_back({middle[0] + radii[0] * std::cos(angle), middle[1] + radii[1] * std::sin(angle)});
  }
  return stroke;
}

inline std::vector<Stroke> strokes_of(int digit) {
  switch (digit) {
    case 0:
      return {arc({50, 50}, {32, 48}, 0, 360)};
    case 1:
      return {{{34, 20}, {52, 2}, {52, 98}}};
    case 2:
      return {arc({50, 28}, {30, 26}, 180, 400), {{73, 45}, {20, 98}, {84, 98}}};
    case 3:
      return {arc({46, 26}, {28, 24}, 200, 450), arc({46, 74}, {32, 24}, 270, 520)};
    case 4:
      return {{{62, 98}, {62, 2}, {14, 66}, {88, 66}}};
    case 5:
      return {{{80, 2}, {30, 2}, {26, 44}}, arc({48, 67}, {32, 31}, 225, 500)};
    case 6:
      return {arc({76, 66}, {56, 64}, 265, 180), arc({48, 70}, {28, 28}, 180, 540)};
    case 7:
      return {{{16, 4}, {84, 4}, {42, 98}}};
    case 8:
      return {arc({50, 26}, {24, 24}, 90, 450), arc({50, 74}, {30, 24}, 270, 630)};
    default:
      return {arc({48, 30}, {28, 28}, 0, 360), {{76, 30}, {68, 98}}};
  }
}

// How a digit is photographed; the defaults are a clean scan.
struct Photograph {
  double size = 260, pen = 10;  // pixels of the digit, hundredths of it
  double slant = 0;             // degrees
  Point middle = {300, 250};
  double ground = 225, ink = 45;            // levels; chalk on a board is light
  double soft_shadow = 0, hard_shadow = 0;  // part of the light that is missing at the right, and beyond an edge
  double lines = 0;                         // contrast of ruled lines
  double noise = 0;                         // levels to both sides
  int64_t rows = 500, columns = 600;
};

inline double distance_to(const Point& at, const Point& a, const Point& b) {
  const double x = b[0] - a[0], y = b[1] - a[1];
  const double along = std::clamp(((at[0] - a[0]) * x + (at[1] - a[1]) * y) / (x * x + y * y), 0.0, 1.0);
  return std::hypot(at[0] - a[0] - along * x, at[1] - a[1] - along * y);
}

inline Image photograph_of(const std::vector<Stroke>& strokes, const Photograph& how) {
  const double angle = how.slant * std::numbers::pi / 180, unit = how.size / 100;
  Image image{{how.rows, how.columns, 1}, {}};
  for (int64_t at = 0; at < how.rows * how.columns; ++at) {
    const auto row = static_cast<double>(at / how.columns), column = static_cast<double>(at % how.columns);
    const double right = column - how.middle[0], down = row - how.middle[1];
    const Point place = {(right * std::cos(angle) + down * std::sin(angle)) / unit + 50,
                         (down * std::cos(angle) - right * std::sin(angle)) / unit + 50};
    double nearest = 1e9;
    for (const Stroke& stroke : strokes) {
      for (size_t i = 1; i < stroke.size(); ++i) {
        nearest = std::min(nearest, distance_to(place, stroke[i - 1], stroke[i]));
      }
    }
    const double covered = std::clamp((how.pen / 2 - nearest) * unit + 0.5, 0.0, 1.0);
    const bool is_line = std::fmod(row + 0.05 * column, 37) < 2;
    double level = std::lerp(how.ground * (is_line ? 1 - how.lines : 1), how.ink, covered);
    level *= 1 - how.soft_shadow * column / static_cast<double>(how.columns);
    if (column + 0.4 * row > 0.8 * static_cast<double>(how.columns)) level *= 1 - how.hard_shadow;
    const RandomStream stream{11, RandomPurpose::synthetic, 0, 0, 0};
    level += how.noise * (2 * to_unit_float(random_bits(stream, static_cast<uint64_t>(at))) - 1);
    image.pixels.push_back(static_cast<uint8_t>(std::clamp(level, 0.0, 255.0)));
  }
  return image;
}

// Ten ways, one for each digit: thin and thick pens, small and large, in the middle and not, two on a board.
inline Photograph way_of(int digit) {
  const double n = digit;
  Photograph how{.size = 150 + 20 * n, .pen = 4 + std::fmod(5 * n, 9), .slant = std::fmod(7 * n, 21) - 10};
  how.middle = {240 + 12 * n, 270 - 5 * n};
  if (digit % 5 == 4) how.ground = 60, how.ink = 210;
  how.soft_shadow = digit % 2 == 1 ? 0.5 : 0.15;
  how.hard_shadow = digit % 3 == 0 ? 0.35 : 0;
  how.lines = digit % 2 == 0 ? 0.2 : 0;
  how.noise = 8;
  return how;
}

}  // namespace hs::test
