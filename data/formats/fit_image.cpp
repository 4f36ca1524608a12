#include "data/formats/fit_image.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"

namespace hs {
namespace {

uint8_t rounded(double value) { return static_cast<uint8_t>(std::lround(value)); }

// The mean of what can be seen: whether it is dark ink or light strokes.
bool is_ink(const Image& image) {
  const auto channels = static_cast<size_t>(image.shape.channels);
  double sum = 0, opaque = 0;
  for (size_t at = 0; at < image.pixels.size(); at += channels) {
    const double alpha = image.pixels[at + channels - 1];
    opaque += alpha;
    for (size_t c = 0; c + 1 < channels; ++c) sum += alpha * image.pixels[at + c] / static_cast<double>(channels - 1);
  }
  return sum < 128 * opaque;
}

Image without_alpha(const Image& image, double ground) {
  const auto before = static_cast<size_t>(image.shape.channels), colours = before - 1;
  Image plain{image.shape, {}};
  plain.shape.channels -= 1;
  for (size_t at = 0; at < image.pixels.size(); at += before) {
    const double opaque = image.pixels[at + colours] / 255.0;
    for (size_t c = 0; c < colours; ++c)
      plain.pixels.push_back(rounded(image.pixels[at + c] * opaque + ground * (1 - opaque)));
  }
  return plain;
}

Image with_channels(const Image& image, int64_t channels) {
  Image changed{image.shape, {}};
  changed.shape.channels = channels;
  const auto& from = image.pixels;
  for (size_t at = 0; at < from.size(); at += static_cast<size_t>(image.shape.channels)) {
    if (channels == 1) {
      changed.pixels.push_back(rounded(0.299 * from[at] + 0.587 * from[at + 1] + 0.114 * from[at + 2]));
    } else {
      changed.pixels.insert(changed.pixels.end(), 3, from[at]);
    }
  }
  return changed;
}

// The mean over (rows, columns) of a side's pixels that each of `after` new ones covers, once for each axis: a list of
// (first pixel, weights).
struct Covered {
  int64_t first;
  std::vector<double> weights;  // they add up to 1
};
// length: of the side in pixels; the last pixel may be a fraction.
std::vector<Covered> coverage(int64_t before, double length, int64_t after) {
  std::vector<Covered> all;
  const double step = length / static_cast<double>(after);
  for (int64_t i = 0; i < after; ++i) {
    const double begin = static_cast<double>(i) * step, end = static_cast<double>(i + 1) * step;
    const auto first = std::min(static_cast<int64_t>(begin), before - 1);
    Covered& covered = all.emplace_back(Covered{first, {}});
    for (int64_t p = first; p < before && (p == first || static_cast<double>(p) < end); ++p) {
      const double left = std::max(begin, static_cast<double>(p)), right = std::min(end, static_cast<double>(p + 1));
      covered.weights.push_back(std::max(right - left, 0.0) / step);
    }
  }
  return all;
}

Image resized(const Image& image, const ImageShape& full, int64_t part, const ImageShape& wanted) {
  const auto length = [part](int64_t side) { return static_cast<double>(side) / static_cast<double>(part); };
  const std::vector<Covered> rows = coverage(image.shape.rows, length(full.rows), wanted.rows);
  const std::vector<Covered> columns = coverage(image.shape.columns, length(full.columns), wanted.columns);
  const int64_t channels = image.shape.channels;
  Image changed{{wanted.rows, wanted.columns, channels}, {}};
  for (const Covered& row : rows) {
    for (const Covered& column : columns) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (size_t i = 0; i < row.weights.size(); ++i) {
          for (size_t j = 0; j < column.weights.size(); ++j) {
            const int64_t pixel =
                (row.first + static_cast<int64_t>(i)) * image.shape.columns + column.first + static_cast<int64_t>(j);
            sum += row.weights[i] * column.weights[j] * image.pixels[static_cast<size_t>(pixel * channels + c)];
          }
        }
        changed.pixels.push_back(rounded(std::clamp(sum, 0.0, 255.0)));
      }
    }
  }
  return changed;
}

}  // namespace

// Turning comes last: the row that stands for fewer rows is then still the last one.
FittedImage fit_stored(StoredImage&& given, const ImageShape& wanted) {
  check(wanted.channels == 1 || wanted.channels == 3, "fit_image: {} channels, expected 1 or 3", wanted.channels);
  FittedImage fitted{std::move(given.image), {}};
  Image& image = fitted.image;
  if (image.shape.channels % 2 == 0) {
    const bool ink = is_ink(image);
    image = without_alpha(image, ink ? 255 : 0);
    fitted.changes.emplace_back(ink ? "transparent pixels put on white" : "transparent pixels put on black");
  }
  if (image.shape.channels != wanted.channels) {
    image = with_channels(image, wanted.channels);
    fitted.changes.emplace_back(wanted.channels == 1 ? "colour made grey" : "grey made colour");
  }
  if (const ImageShape full = as_stored(given.full, given.orientation);
      full.rows != wanted.rows || full.columns != wanted.columns) {
    fitted.changes.push_back(
        fmt::format("resized from {} x {} to {} x {}", full.columns, full.rows, wanted.columns, wanted.rows));
    image = resized(image, given.full, given.part, as_stored(wanted, given.orientation));
  }
  if (given.orientation != 1) {
    image = upright(image, given.orientation);
    fitted.changes.emplace_back("turned upright");
  }
  return fitted;
}

FittedImage fit_image(const Image& image, const ImageShape& wanted) {
  return fit_stored(StoredImage{image, image.shape}, wanted);
}

FittedImage decode_to_fit(std::span<const uint8_t> file, const std::string& name, const ImageShape& wanted) {
  return fit_stored(decode_stored(file, name, largest_side_to_fit, wanted), wanted);
}

void invert(Image& image) {
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(255 - pixel);
}

double border_mean(const Image& image) {
  const auto& [rows, columns, channels] = image.shape;
  double sum = 0, count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      if (row > 0 && row < rows - 1 && column > 0 && column < columns - 1) continue;
      for (int64_t c = 0; c < channels; ++c) {
        sum += image.pixels[static_cast<size_t>((row * columns + column) * channels + c)];
        count += 1;
      }
    }
  }
  return sum / count;
}

}  // namespace hs
