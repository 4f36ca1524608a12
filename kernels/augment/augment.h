// Random changes to images that keep their labels valid: shift, rotation, mirror image, cut-out square (DeVries and
// Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017). Raw bytes in, raw bytes out.
// The result is the same bit for bit on every device: the changes to a sample are drawn from a random stream of (seed,
// epoch, index of the sample), and all arithmetic, sine and cosine included, is on integers. It depends neither on the
// batch size nor on the number of workers.
#pragma once

#include <string_view>

#include "engine/host_device.h"
#include "engine/kernel.h"
#include "engine/observe.h"
#include "engine/random.h"

namespace hs {

inline constexpr int64_t max_augmented_side = 4096;          // pixels; coordinates then fit into 32 bits
inline constexpr int64_t max_shift = 512, max_cutout = 512;  // pixels

// 0 or false: off.
struct AugmentOptions {
  int64_t shift = 0;   // pixels, an integer, at most this many along each axis
  double rotate = 0;   // degrees, at most this many to either side, about the centre of the image
  int64_t cutout = 0;  // pixels, side of a square whose centre may be anywhere in the image
  bool flip = false;   // mirrored left to right, each image with probability 1/2

  bool any() const { return shift != 0 || rotate != 0 || cutout != 0 || flip; }  // whether any is on
};

// "shift=2,rotate=10.5,cutout=8,flip", each at most once; "" sets no option. Throws Error
// (usage) that says what was expected.
AugmentOptions parse_augment(std::string_view spec);

// images (N, H, W, C) u8 -> the same shape; returns images itself if no option is on. samples (N) i32: the index of
// each image in its data set; epoch: i32 scalar; all on one device. Flips, rotates, shifts and cuts out, in this order.
// Pixels from outside the image, and the cut-out square, are 0. Rotation interpolates bilinearly. Not differentiable.
// REQUIRES: H and W at most max_augmented_side; 0 <= shift <= max_shift, 0 <= rotate <= 180, 0 <= cutout <= max_cutout
Tensor augment_image(const Tensor& images, const Tensor& samples, const Tensor& epoch, const AugmentOptions& options,
                     uint64_t seed);

// The kernels' arguments: the options, with the angle in units of 2^-32 of a turn.
struct AugmentRange {
  int32_t shift, cutout;  // pixels
  uint32_t angle;
  bool flip;      // as in AugmentOptions
  uint64_t seed;  // the run's
};

struct AugmentImageForward {  // images, samples, epoch and y of augment_image(), and the range of its options
  const Tensor& images;
  const Tensor& samples;
  const Tensor& epoch;
  const AugmentRange& range;
  Tensor& y;
  auto tensors() const { return tensor_list(images, samples, epoch, y); }
};
constinit inline Kernel<AugmentImageForward> augment_image_forward{"augment_image_forward"};

// The changes to one image.
struct ImageWarp {
  int32_t cosine, sine;  // in units of 2^-16, clockwise
  int32_t right, down;   // shift in pixels
  int32_t left, top;     // first pixel of the cut-out square
  int32_t side;          // of the square
  bool flip;             // mirror left to right, first
};

inline constexpr int32_t warp_one = 1 << 16;  // 1 in units of 2^-16

// Cosine and sine of an angle in units of 2^-32 of a turn, in units of 2^-16, off by less than one; quarters are exact.
HS_HOST_DEVICE constexpr void cosine_and_sine(uint32_t angle, int32_t& cosine, int32_t& sine) {
  const uint32_t quarter = (angle + (1u << 29)) >> 30;                 // the nearest quarter turn; 4 is 0
  const int64_t rest = static_cast<int32_t>(angle - (quarter << 30));  // at most half a quarter
  constexpr int64_t one = int64_t{1} << 30, half_pi = 1686629713;      // pi/2 in units of 2^-30
  const int64_t x = (rest * half_pi) >> 30, x2 = (x * x) >> 30;        // radians
  int64_t s = one - x2 / 42;                                           // Taylor series, innermost term first
  s = one - ((x2 * s) >> 30) / 20;
  s = one - ((x2 * s) >> 30) / 6;
  s = (x * s) >> 30;
  int64_t c = one - x2 / 56;
  c = one - ((x2 * c) >> 30) / 30;
  c = one - ((x2 * c) >> 30) / 12;
  c = one - ((x2 * c) >> 30) / 2;
  const auto rounded_s = static_cast<int32_t>((s + (1 << 13)) >> 14),
             rounded_c = static_cast<int32_t>((c + (1 << 13)) >> 14);
  switch (quarter & 3) {
    case 0:
      cosine = rounded_c, sine = rounded_s;
      break;
    case 1:
      cosine = -rounded_s, sine = rounded_c;
      break;
    case 2:
      cosine = -rounded_c, sine = -rounded_s;
      break;
    default:
      cosine = rounded_s, sine = -rounded_c;
  }
}

// Uniform in 0 .. count-1.
HS_HOST_DEVICE constexpr int32_t scaled(uint32_t bits, uint32_t count) {
  return static_cast<int32_t>((uint64_t{bits} * count) >> 32);
}

// The changes to image `sample` of H x W pixels in an epoch, a pure function of these.
HS_HOST_DEVICE constexpr ImageWarp draw_warp(const AugmentRange& range, int32_t sample, int32_t epoch, int32_t H,
                                             int32_t W) {
  const RandomStream stream{.seed = range.seed,
                            .purpose = RandomPurpose::augment,
                            .step = static_cast<uint32_t>(epoch),
                            .micro_step = static_cast<uint32_t>(sample)};
  const Random4 move = random_block(stream, 0), cut = random_block(stream, 1);
  const auto shifts = static_cast<uint32_t>(2 * range.shift + 1);
  ImageWarp warp{};
  // From -angle to +angle; the product just fits into 64 bits.
  const auto angle = static_cast<uint32_t>((move.word[2] * (2 * uint64_t{range.angle} + 1)) >> 32) - range.angle;
  cosine_and_sine(angle, warp.cosine, warp.sine);
  warp.right = scaled(move.word[0], shifts) - range.shift;
  warp.down = scaled(move.word[1], shifts) - range.shift;
  warp.left = scaled(cut.word[0], static_cast<uint32_t>(W)) - range.cutout / 2;
  warp.top = scaled(cut.word[1], static_cast<uint32_t>(H)) - range.cutout / 2;
  warp.side = range.cutout;
  warp.flip = range.flip && move.word[3] >> 31 != 0;
  return warp;
}

// Computes the C bytes of pixel (y, x) of the result. image (H, W, C)
HS_HOST_DEVICE inline void warped_pixel(const ImageWarp& warp, const uint8_t* image, int32_t H, int32_t W, int32_t C,
                                        int32_t y, int32_t x, uint8_t* pixel) {
  const bool cut = y >= warp.top && y < warp.top + warp.side && x >= warp.left && x < warp.left + warp.side;
  // Offset from the image's centre in half pixels, rotated back: in units of 2^-17 of a pixel.
  const int32_t dx = 2 * (x - warp.right) - (W - 1), dy = 2 * (y - warp.down) - (H - 1);
  const int32_t across = warp.cosine * dx + warp.sine * dy, along = warp.cosine * dy - warp.sine * dx;
  // Position in the image to the nearest 1/256 of a pixel: the integer part, and the weight of the next pixel.
  constexpr int32_t rounding = 1 << 8;
  const int32_t u = (warp.flip ? -across : across) + (W - 1) * warp_one + rounding,
                v = along + (H - 1) * warp_one + rounding;
  const int32_t column = u >> 17, row = v >> 17, next_column = (u >> 9) & 255, next_row = (v >> 9) & 255;
  for (int32_t c = 0; c < C; ++c) {
    const auto at = [&](int32_t i, int32_t j) -> int32_t {
      return i >= 0 && i < H && j >= 0 && j < W ? image[(int64_t{i} * W + j) * C + c] : 0;
    };
    const int32_t upper = (256 - next_column) * at(row, column) + next_column * at(row, column + 1),
                  lower = (256 - next_column) * at(row + 1, column) + next_column * at(row + 1, column + 1);
    pixel[c] = cut ? uint8_t{0} : static_cast<uint8_t>(((256 - next_row) * upper + next_row * lower + (1 << 15)) >> 16);
  }
}

}  // namespace hs
