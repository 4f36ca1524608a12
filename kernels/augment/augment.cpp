#include "kernels/augment/augment.h"

#include <cmath>
#include <set>

#include "engine/check.h"
#include "engine/parsed_number.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

template <class T>
T parse_amount(std::string_view word, std::string_view text, T most, const char* unit) {
  const std::optional<T> value = parsed_number<T>(text);
  if (value && *value >= 0 && *value <= most) return *value;  // so that NaN fails
  fail(ExitCode::usage, "augment {}: expected {} from 0 to {}", word, unit, most);
}

}  // namespace

AugmentOptions parse_augment(std::string_view spec) {
  AugmentOptions options;
  std::set<std::string_view> seen;
  for (std::string_view rest = spec; !rest.empty() || !seen.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view amount = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    if (!seen.insert(name).second) fail(ExitCode::usage, "augment {}: {} is there twice", spec, name);
    if (name == "shift") {
      options.shift = parse_amount(word, amount, max_shift, "a whole number of pixels");
    } else if (name == "rotate") {
      options.rotate = parse_amount(word, amount, 180.0, "a number of degrees");
    } else if (name == "cutout") {
      options.cutout = parse_amount(word, amount, max_cutout, "a whole number of pixels");
    } else if (word == "flip") {
      options.flip = true;
    } else {
      fail(ExitCode::usage, "augment {}: \"{}\" is none of shift=PIXELS, rotate=DEGREES, cutout=PIXELS, flip", spec,
           word);
    }
    if (word.size() == rest.size()) break;
    rest.remove_prefix(word.size() + 1);
  }
  return options;
}

Tensor augment_image(const Tensor& images, const Tensor& samples, const Tensor& epoch, const AugmentOptions& options,
                     uint64_t seed) {
  if (!options.any()) return images;
  const Op op("augment_image");
  check(images.dtype() == DType::u8 && images.shape().rank() == 4,
        "augment_image: images are {}, expected u8(N, H, W, C); augment before pixels are normalised", images);
  const Shape& shape = images.shape();
  check(shape[1] <= max_augmented_side && shape[2] <= max_augmented_side,
        "augment_image: images are {} x {}, expected at most {} x {}", shape[1], shape[2], max_augmented_side,
        max_augmented_side);
  check(samples.defined() && samples.dtype() == DType::i32 && samples.shape() == Shape{shape[0]},
        "augment_image: samples are {}, expected i32({}), the index of each image in its set", samples, shape[0]);
  check(epoch.defined() && epoch.dtype() == DType::i32 && epoch.size() == 1,
        "augment_image: epoch is {}, expected i32()", epoch);
  check(options.shift >= 0 && options.shift <= max_shift, "augment_image: shift is {} pixels, expected 0 to {}",
        options.shift, max_shift);
  check(options.rotate >= 0 && options.rotate <= 180, "augment_image: rotate is {} degrees, expected 0 to 180",
        options.rotate);
  check(options.cutout >= 0 && options.cutout <= max_cutout,
        "augment_image: cutout is a side of {} pixels, expected 0 to {}", options.cutout, max_cutout);
  const AugmentRange range{.shift = static_cast<int32_t>(options.shift),
                           .cutout = static_cast<int32_t>(options.cutout),
                           .angle = static_cast<uint32_t>(std::llround(options.rotate / 360 * 4294967296.0)),
                           .flip = options.flip,
                           .seed = seed};
  Tensor y = images.empty_like();
  augment_image_forward({images, samples, epoch, range, y});
  return y;
}

namespace {

void augment_image_cpu(const AugmentImageForward& call) {
  const auto H = static_cast<int32_t>(call.images.shape()[1]), W = static_cast<int32_t>(call.images.shape()[2]),
             C = static_cast<int32_t>(call.images.shape()[3]);
  const int64_t image_bytes = int64_t{H} * W * C;
  const uint8_t* in = call.images.data<uint8_t>();
  const int32_t *sample = call.samples.data<int32_t>(), *now = call.epoch.data<int32_t>();
  uint8_t* out = call.y.mutable_data<uint8_t>();
  parallel(call.images.shape()[0], [&](int64_t n, int) {
    const ImageWarp warp = draw_warp(call.range, sample[n], *now, H, W);
    const uint8_t* image = in + n * image_bytes;
    uint8_t* pixel = out + n * image_bytes;
    for (int32_t i = 0; i < H; ++i) {
      for (int32_t j = 0; j < W; ++j, pixel += C) warped_pixel(warp, image, H, W, C, i, j, pixel);
    }
  });
}

REGISTER_KERNEL(augment_image_forward, cpu, "simple", {.run = augment_image_cpu});

}  // namespace
}  // namespace hs
