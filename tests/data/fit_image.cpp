// Images of any size and kind as a model's input.
#include "data/formats/fit_image.h"

#include <doctest/doctest.h>

#include "engine/error.h"

namespace {

using namespace hs;
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

}  // namespace
