#include "data/formats/ink.h"

#include <algorithm>
#include <array>
#include <functional>

#include "engine/check.h"

namespace hs {
namespace {

constexpr int64_t longest_side = 512;  // of the picture that is searched: a sign of a tenth of it has pixels enough
constexpr int64_t max_cells = 48;      // along the longer side, for each of which the ground is computed
constexpr float faint = 0.15f;         // contrast; most noise is below it
constexpr size_t smallest_sign = 20;   // pixels
constexpr double thinnest = 0.1;       // stroke, as a part of the sign's longer side: two pixels of twenty

// As large as the box has room for, with the same ratio of the sides.
ImageShape inside(const ImageShape& shape, const ImageShape& box) {
  const auto part = [](int64_t side, int64_t by, int64_t of) {
    return std::max<int64_t>(1, (2 * side * by + of) / (2 * of));
  };
  if (shape.rows * box.columns > shape.columns * box.rows) {
    return {box.rows, part(shape.columns, box.rows, shape.rows)};
  }
  return {part(shape.rows, box.columns, shape.columns), box.columns};
}

// The level of the paper or the board: for each cell the median of a third of the picture around it, or beside it at an
// edge. Most of that is ground, even where a table is seen beyond the paper, and it follows the edge of a shadow.
Image ground_of(const Image& grey) {
  const int64_t most = std::min(std::max(grey.shape.rows, grey.shape.columns), max_cells), size = most / 3 + 1;
  const Image cells = fit_image(grey, inside(grey.shape, {most, most})).image;
  const auto [rows, columns, channels] = cells.shape;
  const auto first = [size](int64_t at, int64_t side) {
    return std::clamp<int64_t>(at - size / 2, 0, std::max<int64_t>(0, side - size));
  };
  Image ground{cells.shape, {}};
  for (int64_t cell = 0; cell < rows * columns; ++cell) {
    const int64_t top = first(cell / columns, rows), left = first(cell % columns, columns);
    std::vector<uint8_t> near;
    for (int64_t row = top; row < std::min(rows, top + size); ++row) {
      const auto begin = cells.pixels.begin() + row * columns + left;
      near.insert(near.end(), begin, begin + std::min(columns - left, size));
    }
    const auto middle = near.begin() + std::ssize(near) / 2;
    std::ranges::nth_element(near, middle);
    ground.pixels.push_back(*middle);
  }
  return fit_image(ground, grey.shape).image;
}

// How much darker each pixel is than the ground, -1 to 1: lighter ones are below 0. The offset keeps noise on a black
// ground small.
std::vector<float> contrasts_of(const Image& grey) {
  constexpr float offset = 32;
  const Image ground = ground_of(grey);
  std::vector<float> contrasts;
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    const float level = ground.pixels[i], own = grey.pixels[i];
    contrasts.push_back((level - own) / (std::max(level, own) + offset));
  }
  return contrasts;
}

// Otsu's threshold (1979) of the contrasts that are not faint: it parts ink from ruled lines and blurred edges.
float threshold_of(const std::vector<float>& contrasts) {
  constexpr size_t bins = 128;
  std::array<double, bins> counts{};
  double all = 0, moment = 0, below = 0, moment_below = 0, most = 0;
  for (const float contrast : contrasts) {
    if (contrast <= faint) continue;
    const auto bin = static_cast<size_t>(contrast * bins);
    counts[bin] += 1, all += 1, moment += static_cast<double>(bin);
  }
  float threshold = faint;
  for (size_t bin = 0; bin < bins; ++bin) {
    below += counts[bin], moment_below += counts[bin] * static_cast<double>(bin);
    if (below == 0 || below == all) continue;
    const double difference = moment_below / below - (moment - moment_below) / (all - below);
    const double between = below * (all - below) * difference * difference;
    if (between > most) most = between, threshold = static_cast<float>(bin + 1) / bins;
  }
  return threshold;
}

// Pixels of ink that touch each other, at corners too, without those of the edge itself.
struct Blob {
  std::vector<int64_t> pixels;
  bool reaches_edge = false;
};

std::vector<Blob> parts_of(std::vector<float> contrasts, float threshold, const ImageShape& shape) {
  std::vector<Blob> parts;
  const auto take = [&](int64_t at, Blob& part) {
    if (contrasts[static_cast<size_t>(at)] < threshold) return;
    const int64_t row = at / shape.columns, column = at % shape.columns;
    if (row == 0 || row == shape.rows - 1 || column == 0 || column == shape.columns - 1) {
      part.reaches_edge = true;
      return;
    }
    contrasts[static_cast<size_t>(at)] = 0;
    part.pixels.push_back(at);
  };
  for (int64_t start = 0; start < std::ssize(contrasts); ++start) {
    Blob part;
    take(start, part);
    for (size_t next = 0; next < part.pixels.size(); ++next) {
      const int64_t at = part.pixels[next];
      for (const int64_t line : {at - shape.columns, at, at + shape.columns}) {
        for (int64_t near = line - 1; near <= line + 1; ++near) take(near, part);
      }
    }
    if (part.pixels.size() >= smallest_sign) parts.push_back(std::move(part));
  }
  return parts;
}

// The pixels of the sign, or none. What reaches the edge of a picture of so many pixels, a table or a margin, is left
// out, unless everything else is specks, of a thousandth of it.
std::vector<int64_t> pixels_of_sign(std::vector<Blob> parts, size_t all) {
  const auto size = [](const Blob& part) { return part.pixels.size(); };
  std::ranges::sort(parts, std::greater(), size);
  const auto inner = std::ranges::find(parts, false, &Blob::reaches_edge);
  if (inner != parts.end() && size(*inner) * 1000 >= all) std::erase_if(parts, std::mem_fn(&Blob::reaches_edge));
  std::vector<int64_t> pixels;
  for (const Blob& part : parts) {
    if (size(part) * 10 >= size(parts[0])) pixels.insert(pixels.end(), part.pixels.begin(), part.pixels.end());
  }
  return pixels;
}

// The box of these pixels of a picture with so many columns, white on black, each pixel a disc of this radius.
Image drawn(const std::vector<int64_t>& pixels, int64_t columns, double radius) {
  const auto column = [columns](int64_t at) { return at % columns; };
  const auto [top, bottom] = std::ranges::minmax(pixels);
  const auto [left, right] = std::ranges::minmax(pixels, {}, column);
  const auto reach = static_cast<int64_t>(radius);
  Image sign{{bottom / columns - top / columns + 1 + 2 * reach, column(right) - column(left) + 1 + 2 * reach}, {}};
  sign.pixels.resize(static_cast<size_t>(sign.shape.image_bytes()));
  for (const int64_t at : pixels) {
    for (int64_t r = -reach; r <= reach; ++r) {
      for (int64_t c = -reach; c <= reach; ++c) {
        if (static_cast<double>(r * r + c * c) > radius * radius) continue;
        const int64_t row = at / columns - top / columns + reach + r;
        sign.pixels[static_cast<size_t>(row * sign.shape.columns + column(at) - column(left) + reach + c)] = 255;
      }
    }
  }
  return sign;
}

// About the width of the strokes: those that are wider by two have so many pixels more.
double stroke_width(const Image& sign, const Image& wider) {
  const auto area = [](const Image& image) { return static_cast<double>(std::ranges::count(image.pixels, 255)); };
  return 2 * area(sign) / (area(wider) - area(sign));
}

// On black, moved by whole pixels so that its centre of mass is in the middle, as far as there is room.
Image centred(const Image& sign, const ImageShape& wanted) {
  const auto [rows, columns, channels] = sign.shape;
  int64_t mass = 0, down = 0, across = 0;  // twice the moments, because a pixel's middle is at a half
  for (int64_t at = 0; at < rows * columns; ++at) {
    const int64_t weight = sign.pixels[static_cast<size_t>(at)];
    mass += weight, down += weight * (2 * (at / columns) + 1), across += weight * (2 * (at % columns) + 1);
  }
  const auto first = [mass](int64_t side, int64_t own, int64_t moment) {
    return std::clamp<int64_t>((side * mass - moment + mass) / (2 * mass), 0, side - own);
  };
  const int64_t top = first(wanted.rows, rows, down), left = first(wanted.columns, columns, across);
  Image image{wanted, std::vector<uint8_t>(static_cast<size_t>(wanted.image_bytes()))};
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(sign.pixels.begin() + row * columns, columns,
                image.pixels.begin() + (top + row) * wanted.columns + left);
  }
  return image;
}

}  // namespace

FittedImage decode_ink(std::span<const uint8_t> file, const std::string& name, const ImageShape& wanted) {
  StoredImage stored = decode_stored(file, name, largest_side_to_fit, ImageShape{longest_side, longest_side});
  const ImageShape full = as_stored(stored.full, stored.orientation);
  const int64_t side = std::min(std::max(full.rows, full.columns), longest_side);
  FittedImage fitted = fit_stored(std::move(stored), inside(full, {side, side}));
  const ImageShape shape = fitted.image.shape;
  std::vector<float> contrasts = contrasts_of(fitted.image);
  float dark = 0;  // strong contrasts decide, not the many faint ones of noise and shadows
  for (const float contrast : contrasts) dark += contrast * contrast * contrast;
  if (dark < 0) std::ranges::transform(contrasts, contrasts.begin(), std::negate());
  const std::vector<int64_t> pixels =
      pixels_of_sign(parts_of(contrasts, threshold_of(contrasts), shape), contrasts.size());
  if (pixels.empty()) {
    fail(ExitCode::bad_input, "{}: no ink was found, expected a sign that is darker or lighter than what is around it",
         name);
  }
  fitted.changes.emplace_back("background divided out");
  if (dark > 0) fitted.changes.emplace_back("ink made light");
  Image sign = drawn(pixels, shape.columns, 0);
  const auto [rows, columns, channels] = sign.shape;
  fitted.changes.push_back(fmt::format("cut to the ink, {} x {} of {} x {}", columns, rows, shape.columns, shape.rows));
  const double width = stroke_width(sign, drawn(pixels, shape.columns, 1));
  const double least = thinnest * static_cast<double>(std::max(rows, columns));
  if (width + 1 < least) {
    sign = drawn(pixels, shape.columns, (least - width) / 2);
    fitted.changes.push_back(fmt::format("strokes made {:.1f} times as thick", least / width));
  }
  const ImageShape box = {std::max<int64_t>(1, wanted.rows * 20 / 28), std::max<int64_t>(1, wanted.columns * 20 / 28)};
  fitted.image = centred(fit_image(sign, inside(sign.shape, box)).image, wanted);
  fitted.changes.push_back(fmt::format("fitted into {} x {}, its centre of mass in the middle", box.columns, box.rows));
  return fitted;
}

}  // namespace hs
