// Images of any size and kind as a model's input.
#include "data/formats/fit_image.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>

#include "data/formats/ink.h"
#include "engine/error.h"
#include "tests/support/handwriting.h"

namespace {

using namespace hs;
using namespace hs::test;
using Pixels = std::vector<uint8_t>;

Pixels resized(const Pixels& pixels, const ImageShape& from, const ImageShape& to) {
  return fit_image({from, pixels}, to).image.pixels;
}

TEST_CASE("what fits stays, without a remark") {
  for (const int64_t channels : {1, 3}) {
    const ImageShape shape = {2, 3, channels};
    Pixels pixels(static_cast<size_t>(6 * channels));
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 13);
    const FittedImage fitted = fit_image({shape, pixels}, shape);
    CHECK(fitted.image.pixels == pixels);
    CHECK(fitted.image.shape == shape);
    CHECK(fitted.changes.empty());
  }
}

TEST_CASE("a pixel is the mean of what it covers") {
  CHECK(resized({0, 100, 50, 250}, {2, 2, 1}, {1, 1, 1}) == Pixels{100});
  CHECK(resized({0, 100, 50, 250}, {2, 2, 1}, {1, 2, 1}) == Pixels{25, 175});
  CHECK(resized({10, 20}, {1, 2, 1}, {1, 4, 1}) == Pixels{10, 10, 20, 20});
  CHECK(resized({0, 90, 240}, {1, 3, 1}, {1, 2, 1}) == Pixels{30, 190});  // a half of the one in the middle each
  CHECK(resized({0, 120}, {1, 2, 1}, {1, 3, 1}) == Pixels{0, 60, 120});
  CHECK(resized({1, 2, 3, 11, 12, 13}, {2, 1, 3}, {1, 1, 3}) == Pixels{6, 7, 8});
  // A constant stays one, at any ratio.
  for (const int64_t from : {1, 5, 27, 29, 211}) {
    for (const int64_t to : {1, 28, 64}) {
      const Pixels one = resized(Pixels(static_cast<size_t>(from * from), 201), {from, from, 1}, {to, to, 1});
      CHECK(one == Pixels(static_cast<size_t>(to * to), 201));
    }
  }
}

// Decoded at a half, a quarter and an eighth, with each number of rows and columns that is left over: white there,
// black elsewhere. As one decodes all of it, and held in each way; in none is the white at the end of both
// sides.
TEST_CASE("a JPEG that is decoded smaller is the same image") {
  if (!can_read_jpeg()) return;
  constexpr ImageShape wanted = {24, 32, 1};
  for (const int64_t part : {2, 4, 8}) {
    for (int64_t left = 0; left < part; ++left) {
      const ImageShape shape = {24 * part + left, 32 * part + left, 1};
      Image image{shape, {}};
      for (int64_t i = 0; i < shape.image_bytes(); ++i) {
        const bool is_white = i / shape.columns >= 24 * part || i % shape.columns >= 32 * part;
        image.pixels.push_back(is_white ? 255 : 0);
      }
      Pixels file = encode_jpeg(image);
      CAPTURE(part);
      CAPTURE(left);
      CHECK(decode_stored(file, "FILE", largest_side_to_fit, wanted).part == part);
      const Pixels exact = fit_image(image, wanted).image.pixels,
                   read = decode_to_fit(file, "FILE", wanted).image.pixels;
      REQUIRE(read.size() == exact.size());
      for (size_t i = 0; i < exact.size(); ++i) CHECK(std::abs(read[i] - exact[i]) <= 1);
      // APP1: EXIF's tag 0x0112 alone.
      Pixels app1 = {0xff, 0xe1, 0, 34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                     0,    1,    1, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
      file.insert(file.begin() + 2, app1.begin(), app1.end());
      const FittedImage turned = decode_to_fit(file, "FILE", as_stored(wanted, 6));
      CHECK(turned.image.pixels == upright({wanted, read}, 6).pixels);
      CHECK(turned.changes.front().starts_with(
          fmt::format("resized from {} x {} to 24 x 32", shape.rows, shape.columns)));
      CHECK(turned.changes.back() == "turned upright");
    }
  }
}

TEST_CASE("colours and transparency") {
  const FittedImage grey = fit_image({{1, 2, 3}, {255, 255, 255, 255, 0, 0}}, {1, 2, 1});
  CHECK(grey.image.pixels == Pixels{255, 76});
  CHECK(grey.changes == std::vector<std::string>{"colour made grey"});
  const FittedImage colour = fit_image({{1, 2, 1}, {7, 9}}, {1, 2, 3});
  CHECK(colour.image.pixels == Pixels{7, 7, 7, 9, 9, 9});
  CHECK(colour.changes == std::vector<std::string>{"grey made colour"});
  const FittedImage opaque = fit_image({{1, 2, 2}, {200, 255, 200, 51}}, {1, 2, 1});
  CHECK(opaque.image.pixels == Pixels{200, 40});
  CHECK(opaque.changes == std::vector<std::string>{"transparent pixels put on black"});
  const FittedImage ink = fit_image({{1, 3, 4}, {0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 51}}, {1, 3, 1});
  CHECK(ink.image.pixels == Pixels{0, 255, 204});
  CHECK(ink.changes == std::vector<std::string>{"transparent pixels put on white", "colour made grey"});
  const FittedImage all = fit_image({{1, 1, 4}, {255, 255, 255, 0}}, {2, 1, 1});
  CHECK(all.image.pixels == Pixels{0, 0});
  CHECK(all.changes ==
        std::vector<std::string>{"transparent pixels put on black", "colour made grey", "resized from 1 x 1 to 1 x 2"});
  CHECK_THROWS_AS(fit_image({{1, 1, 1}, {0}}, {1, 1, 4}), Error);
}

TEST_CASE("ink on paper") {
  Image image{{3, 3, 1}, {250, 250, 250, 250, 0, 250, 250, 250, 250}};
  CHECK(border_mean(image) == 250);
  invert(image);
  CHECK(image.pixels == Pixels{5, 5, 5, 5, 255, 5, 5, 5, 5});
  CHECK(border_mean(image) == 5);
}

Image ink_of(const Image& photograph, const ImageShape& wanted = {28, 28}) {
  return decode_ink(encode_pgm(photograph), "FILE", wanted).image;
}

// The box of what is not black: top, bottom, left, right; and the centre of mass.
struct Place {
  int64_t top, bottom = 0, left, right = 0;
  double mass = 0, row = 0, column = 0;
};
Place place_of(const Image& image) {
  const auto [rows, columns, channels] = image.shape;
  Place place{.top = rows, .left = columns};
  for (int64_t at = 0; at < rows * columns; ++at) {
    const double weight = image.pixels[static_cast<size_t>(at)];
    if (weight == 0) continue;
    const int64_t row = at / columns, column = at % columns;
    place.top = std::min(place.top, row), place.bottom = std::max(place.bottom, row + 1);
    place.left = std::min(place.left, column), place.right = std::max(place.right, column + 1);
    place.mass += weight;
    place.row += weight * (static_cast<double>(row) + 0.5),
        place.column += weight * (static_cast<double>(column) + 0.5);
  }
  place.row /= place.mass, place.column /= place.mass;
  return place;
}

TEST_CASE("ink: photographs become what clean scans become, and lie as MNIST's digits do") {
  for (int digit = 0; digit < 10; ++digit) {
    CAPTURE(digit);
    const Photograph how = way_of(digit);
    const Photograph clean{.size = how.size, .pen = how.pen, .slant = how.slant, .middle = how.middle};
    const Image image = ink_of(photograph_of(strokes_of(digit), how));
    const Place place = place_of(image);
    CHECK(std::max(place.bottom - place.top, place.right - place.left) == 20);
    CHECK(std::abs(place.row - 14) <= 0.5);
    CHECK(std::abs(place.column - 14) <= 0.5);
    CHECK(std::ranges::max(image.pixels) == 255);
    const double scan = place_of(ink_of(photograph_of(strokes_of(digit), clean))).mass;
    CHECK(std::abs(place.mass - scan) < 0.05 * scan);
  }
}

TEST_CASE("ink: other sizes, thin pens, strokes at the edge, and no ink") {
  const std::vector<Stroke> seven = strokes_of(7);
  const Place tall = place_of(ink_of(photograph_of(seven, {}), {56, 42}));
  CHECK(tall.bottom - tall.top == 40);
  CHECK(std::abs(tall.row - 28) <= 0.5);
  CHECK(std::abs(tall.column - 21) <= 0.5);
  // Thick strokes stay as thick, and thin ones become thicker.
  const double thin = place_of(ink_of(photograph_of(seven, {.pen = 2}))).mass,
               medium = place_of(ink_of(photograph_of(seven, {.pen = 9}))).mass,
               thick = place_of(ink_of(photograph_of(seven, {.pen = 18}))).mass;
  CHECK(thin > 0.75 * medium);
  CHECK(thick > 1.5 * medium);
  // A digit that the picture cuts off, with a speck beside it; and one beside the rim of a table.
  const std::vector<Stroke> speck = {{{-40, 50}, {-40, 54}}};
  std::vector<Stroke> both = seven;
  both.insert(both.end(), speck.begin(), speck.end());
  CHECK(place_of(ink_of(photograph_of(both, {.size = 560, .pen = 2, .middle = {300, 280}}))).mass > 0.7 * medium);
  both.push_back({{-150, -100}, {-60, 300}});
  const double alone = place_of(ink_of(photograph_of(seven, {}))).mass;
  CHECK(std::abs(place_of(ink_of(photograph_of(both, {}))).mass - alone) < 0.02 * alone);

  const FittedImage fitted = decode_ink(encode_pgm(photograph_of(seven, {.pen = 2})), "FILE", {28, 28});
  REQUIRE(fitted.changes.size() == 6);
  CHECK(fitted.changes[2] == "ink made light");
  CHECK(fitted.changes[3].starts_with("cut to the ink, 1"));
  CHECK(fitted.changes[4].starts_with("strokes made "));
  CHECK(fitted.changes[5] == "fitted into 20 x 20, its centre of mass in the middle");
  for (const double noise : {0.0, 10.0}) {
    const Image blank = photograph_of({}, {.soft_shadow = 0.5, .noise = noise});
    CHECK_THROWS_WITH_AS(ink_of(blank), doctest::Contains("FILE: no ink was found"), Error);
  }
  CHECK_THROWS_AS(ink_of({{1, 1}, {0}}), Error);
}

}  // namespace
