// Augmentation on the CPU: known changes of small images, and what the random numbers depend on.
#include <cmath>
#include <map>
#include <numbers>

#include "kernels/augment/augment.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr ImageWarp identity{
    .cosine = warp_one, .sine = 0, .right = 0, .down = 0, .left = 0, .top = 0, .side = 0, .flip = false};

Bytes warped(const Bytes& image, int H, int W, const ImageWarp& warp, int C = 1) {
  Bytes result(image.size(), 77);
  for (int y = 0; y < H; ++y) {
    for (int x = 0; x < W; ++x) {
      warped_pixel(warp, image.data(), H, W, C, y, x, result.data() + (y * W + x) * C);
    }
  }
  return result;
}

Bytes noise(int64_t size, uint64_t seed = 1) {
  Bytes bytes;
  for (int64_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<uint8_t>(random_bits({.seed = seed}, static_cast<uint64_t>(i))));
  }
  return bytes;
}

Tensor scalar(int32_t value) { return Tensor::from(std::vector<int32_t>{value}, {}); }

const AugmentOptions all_options{.shift = 2, .rotate = 20, .cutout = 3, .flip = true};

// Samples first .. first+count-1 of a set of noise, changed.
Bytes augmented(const AugmentOptions& options, int32_t first, int32_t count, int32_t epoch = 0, uint64_t seed = 1) {
  constexpr int64_t H = 9, W = 7, C = 3;
  Bytes pixels;
  std::vector<int32_t> samples;
  for (int32_t sample = first; sample < first + count; ++sample) {
    samples.push_back(sample);
    const Bytes image = noise(H * W * C, static_cast<uint64_t>(sample) + 100);
    pixels.insert(pixels.end(), image.begin(), image.end());
  }
  const Tensor images = Tensor::from(pixels, {count, H, W, C});
  return augment_image(images, Tensor::from(samples, {count}), scalar(epoch), options, seed).to_vector<uint8_t>();
}

// Whether each value was drawn about equally often: the sum of squares over its mean has mean values-1 and variance
// 2(values-1).
void check_uniform(const std::map<int32_t, int>& counts, int values) {
  double total = 0, square = 0;
  for (const auto& [value, count] : counts) total += count;
  const double expected = total / values;
  for (const auto& [value, count] : counts) square += (count - expected) * (count - expected) / expected;
  CHECK(static_cast<int>(counts.size()) == values);
  CHECK(square < values - 1 + 5 * std::sqrt(2.0 * (values - 1)));
}

}  // namespace

TEST_CASE("no option: the same tensor; a range of nothing: the same bytes") {
  const Bytes pixels = noise(2 * 5 * 3);
  const Tensor images = Tensor::from(pixels, {2, 5, 3, 1});
  CHECK(augment_image(images, {}, {}, {}, 1).data<uint8_t>() == images.data<uint8_t>());
  for (const auto& [H, W, C] : {std::array{5, 6, 1}, std::array{2, 5, 3}, std::array{1, 1, 1}}) {
    const Bytes image = noise(int64_t{H} * W * C);
    CHECK(warped(image, H, W, identity, C) == image);
    CHECK(warped(image, H, W, draw_warp({}, 7, 3, H, W), C) == image);
  }
}

TEST_CASE("known changes of small images") {
  const Bytes image = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto with = [&](const auto& change) {
    ImageWarp warp = identity;
    change(warp);
    return warped(image, 3, 3, warp);
  };
  CHECK(with([](ImageWarp& w) { w.right = 1; }) == Bytes{0, 1, 2, 0, 4, 5, 0, 7, 8});
  CHECK(with([](ImageWarp& w) { w.right = -2; }) == Bytes{3, 0, 0, 6, 0, 0, 9, 0, 0});
  CHECK(with([](ImageWarp& w) { w.down = 1; }) == Bytes{0, 0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(with([](ImageWarp& w) { w.right = 1, w.down = -1; }) == Bytes{0, 4, 5, 0, 7, 8, 0, 0, 0});
  CHECK(with([](ImageWarp& w) { w.right = 3; }) == Bytes(9));
  CHECK(with([](ImageWarp& w) { w.flip = true; }) == Bytes{3, 2, 1, 6, 5, 4, 9, 8, 7});
  CHECK(with([](ImageWarp& w) { w.cosine = 0, w.sine = warp_one; }) == Bytes{7, 4, 1, 8, 5, 2, 9, 6, 3});  // clockwise
  CHECK(with([](ImageWarp& w) { w.cosine = -warp_one; }) == Bytes{9, 8, 7, 6, 5, 4, 3, 2, 1});
  CHECK(with([](ImageWarp& w) { w.cosine = 0, w.sine = -warp_one; }) == Bytes{3, 6, 9, 2, 5, 8, 1, 4, 7});
  // Flipped first, then turned, then moved, then cut.
  CHECK(with([](ImageWarp& w) { w.flip = true, w.cosine = 0, w.sine = warp_one; }) == Bytes{9, 6, 3, 8, 5, 2, 7, 4, 1});
  CHECK(with([](ImageWarp& w) { w.right = 1, w.cosine = 0, w.sine = warp_one; }) == Bytes{0, 7, 4, 0, 8, 5, 0, 9, 6});
  CHECK(with([](ImageWarp& w) { w.down = 1, w.side = 1, w.left = 2, w.top = 2; }) == Bytes{0, 0, 0, 1, 2, 3, 4, 5, 0});
  CHECK(with([](ImageWarp& w) { w.side = 2, w.left = 1, w.top = -1; }) == Bytes{1, 0, 0, 4, 5, 6, 7, 8, 9});
  // Sides of even and odd length; half turns keep a rectangle; colours stay together.
  ImageWarp half_turn = identity;
  half_turn.cosine = -warp_one;
  CHECK(warped({1, 2, 3, 4, 5, 6}, 2, 3, half_turn) == Bytes{6, 5, 4, 3, 2, 1});
  CHECK(warped({1, 2, 3, 4, 5, 6}, 1, 2, half_turn, 3) == Bytes{4, 5, 6, 1, 2, 3});
  // A quarter turn of 1 x 2 pixels: each place is between two of them and the black outside.
  ImageWarp quarter = identity;
  quarter.cosine = 0, quarter.sine = warp_one;
  CHECK(warped({100, 200}, 1, 2, quarter) == Bytes{75, 75});
}

TEST_CASE("cosine and sine: exact at quarters, off by less than one unit anywhere") {
  int32_t cosine = 0, sine = 0;
  const int32_t quarters[4][2] = {{warp_one, 0}, {0, warp_one}, {-warp_one, 0}, {0, -warp_one}};
  for (uint32_t quarter = 0; quarter < 4; ++quarter) {
    cosine_and_sine(quarter << 30, cosine, sine);
    CHECK(cosine == quarters[quarter][0]);
    CHECK(sine == quarters[quarter][1]);
  }
  double worst = 0;
  for (uint64_t angle = 0; angle < (uint64_t{1} << 32); angle += 12347) {
    cosine_and_sine(static_cast<uint32_t>(angle), cosine, sine);
    const double radians = static_cast<double>(angle) * 0x1p-31 * std::numbers::pi;
    worst = std::max(
        {worst, std::fabs(cosine - warp_one * std::cos(radians)), std::fabs(sine - warp_one * std::sin(radians))});
  }
  CHECK(worst < 0.6);
  CHECK(worst > 0.4);  // the comparison sees rounding
}

TEST_CASE("pixels depend on seed, epoch and sample alone, not on the batch") {
  const Bytes all = augmented(all_options, 0, 40);
  for (const int32_t batch : {1, 3, 7, 40}) {
    Bytes joined;
    for (int32_t first = 0; first < 40; first += batch) {
      const Bytes part = augmented(all_options, first, std::min(batch, 40 - first));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    CHECK(joined == all);
  }
  CHECK(augmented(all_options, 0, 40) == all);
  CHECK(augmented(all_options, 0, 40, 1) != all);
  CHECK(augmented(all_options, 0, 40, 0, 2) != all);
  CHECK(augmented(all_options, 0, 40, 0, uint64_t{1} << 32 | 1) != all);
  CHECK(augmented(all_options, 0, 0).empty());
}

TEST_CASE("draws are uniform in their ranges") {
  constexpr int32_t draws = 20000;
  std::map<int32_t, int> right, down, left, top, flips, angles;
  const uint32_t ten_degrees = 119304647;
  double cosine_at_limit = std::cos(std::numbers::pi / 18) * warp_one;
  int both = 0;
  for (int32_t sample = 0; sample < draws; ++sample) {
    const ImageWarp warp = draw_warp({2, 5, ten_degrees, true, 1}, sample, 0, 20, 30);
    ++right[warp.right], ++down[warp.down], ++left[warp.left], ++top[warp.top], ++flips[warp.flip];
    both += warp.right == warp.down;
    const double degrees = std::atan2(warp.sine, warp.cosine) * 180 / std::numbers::pi;
    CHECK(warp.cosine >= cosine_at_limit - 1);
    ++angles[static_cast<int32_t>(std::floor(degrees))];
  }
  CHECK(right.begin()->first == -2);
  CHECK(left.begin()->first == -2);
  CHECK(left.rbegin()->first == 27);
  CHECK(angles.begin()->first == -10);
  CHECK(angles.rbegin()->first == 9);
  check_uniform(right, 5), check_uniform(down, 5), check_uniform(left, 30), check_uniform(top, 20);
  check_uniform(flips, 2), check_uniform(angles, 20);
  CHECK(std::abs(both - draws / 5) < 5 * std::sqrt(draws * 0.16));  // the axes are independent
  // An option does not change what another one draws.
  const ImageWarp with = draw_warp({2, 5, ten_degrees, true, 1}, 3, 0, 20, 30),
                  without = draw_warp({2, 0, 0, false, 1}, 3, 0, 20, 30);
  CHECK(with.right == without.right);
  CHECK(with.down == without.down);
  CHECK(with.side == 5);
}

TEST_CASE("wrong arguments are named") {
  const Tensor images = Tensor::zeros({2, 3, 4, 1}, DType::u8), samples = Tensor::zeros({2}, DType::i32),
               epoch = scalar(0);
  const auto refused = [](const Tensor& x, const Tensor& s, const Tensor& e, const AugmentOptions& options) {
    return error_of([&] { augment_image(x, s, e, options, 1); });
  };
  const AugmentOptions one{.shift = 1};
  CHECK_NOTHROW(augment_image(images, samples, epoch, one, 1));
  CHECK(refused(Tensor::zeros({2, 3, 4, 1}, DType::f32), samples, epoch, one) ==
        "augment_image: images are f32(2, 3, 4, 1), expected u8(N, H, W, C); augment before pixels are normalised");
  CHECK(refused(Tensor::zeros({2, 12}, DType::u8), samples, epoch, one).find("images are u8(2, 12)") !=
        std::string::npos);
  CHECK(refused(Tensor::zeros({0, 4097, 1, 1}, DType::u8), samples, epoch, one).find("images are 4097 x 1") !=
        std::string::npos);
  CHECK(refused(images, {}, epoch, one).find("samples are undefined") != std::string::npos);
  CHECK(refused(images, Tensor::zeros({3}, DType::i32), epoch, one).find("samples are i32(3), expected i32(2)") !=
        std::string::npos);
  CHECK(refused(images, samples, samples, one).find("epoch is i32(2)") != std::string::npos);
  CHECK(refused(images, samples, epoch, {.shift = 513}).find("shift is 513 pixels") != std::string::npos);
  CHECK(refused(images, samples, epoch, {.shift = 1, .rotate = 181}).find("rotate is 181 degrees") !=
        std::string::npos);
  CHECK(refused(images, samples, epoch, {.cutout = 513}).find("513 pixels") != std::string::npos);
}

TEST_CASE("parse_augment: every option, any order, and every mistake") {
  const AugmentOptions options = parse_augment("rotate=10.5,flip,shift=2,cutout=8");
  CHECK(options.shift == 2);
  CHECK(options.rotate == 10.5);
  CHECK(options.cutout == 8);
  CHECK(options.flip);
  CHECK(!parse_augment("").any());
  CHECK(!parse_augment("shift=0").any());
  CHECK(!parse_augment("shift=2").flip);
  const auto refused = [](const char* spec) { return error_of([&] { parse_augment(spec); }); };
  for (const char* word : {"shift", "shift=", "shift=-1", "shift=513", "shift=1.5", "shift=2x", "shift= 2"}) {
    CHECK(refused(word) == std::string("augment ") + word + ": expected a whole number of pixels from 0 to 512");
  }
  for (const char* word : {"rotate", "rotate=-1", "rotate=180.1", "rotate=nan", "rotate=inf", "rotate=1e9"}) {
    CHECK(refused(word) == std::string("augment ") + word + ": expected a number of degrees from 0 to 180");
  }
  CHECK(refused("cutout=x") == "augment cutout=x: expected a whole number of pixels from 0 to 512");
  for (const char* spec : {"turn=3", "flip=1", "shift=2,", ",", "shift=2,,flip", "shift=2;flip=1", "flip "}) {
    CHECK(refused(spec).starts_with("augment "));
  }
  CHECK(refused("shift=2,Flip") ==
        "augment shift=2,Flip: \"Flip\" is none of shift=PIXELS, rotate=DEGREES, cutout=PIXELS, flip");
  CHECK(refused("shift=2,shift=2") == "augment shift=2,shift=2: shift is there twice");
}

}  // namespace hs::test
