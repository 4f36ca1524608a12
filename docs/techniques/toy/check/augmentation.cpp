// The toy's warp of an image is the engine's, with the angle and the shift that the engine has drawn.
#define main main_of_augmentation
#include "docs/techniques/toy/augmentation.cpp"
#undef main

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "kernels/augment/augment.h"

TEST_CASE("toy: augmentation") {
  constexpr int H = 28, W = 21, images = 20, epoch = 3;
  std::vector<uint8_t> bytes(images * H * W);
  std::vector<int32_t> samples(images);
  for (int i = 0; i < images * H * W; ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  for (int n = 0; n < images; ++n) samples[n] = 7 * n;
  const std::vector<uint8_t> warped =
      hs::augment_image(hs::Tensor::from(bytes, {images, H, W, 1}), hs::Tensor::from(samples, {images}),
                        hs::Tensor::from(std::vector<int32_t>{epoch}, {}), {.shift = 3, .rotate = 180}, 11)
          .to_vector<uint8_t>();
  double largest = 0;
  for (int n = 0; n < images; ++n) {
    const hs::ImageWarp drawn = hs::draw_warp({3, 0, 1u << 31, false, 11}, samples[n], epoch, H, W);
    const Image image{H, W, std::vector<double>(bytes.begin() + n * H * W, bytes.begin() + (n + 1) * H * W)};
    const Image result = backwards(image, {drawn.cosine / 65536.0, drawn.sine / 65536.0, drawn.right, drawn.down});
    for (int i = 0; i < H * W; ++i) largest = std::max(largest, std::abs(result.pixels[i] - warped[n * H * W + i]));
  }
  // The engine rounds positions to 1/256 of a pixel and results to integers: two half steps of a ramp of 255, and half
  // a step of the result.
  CHECK(largest <= 1.5);
  CHECK(main_of_augmentation() == 0);
}
