// Augmentation on the CUDA device: the CPU's pixels, bit for bit, whatever the options, sizes and channels.
#include <doctest/doctest.h>

#include "engine/random.h"
#include "kernels/augment/augment.h"
#include "tests/support/checks.h"

namespace hs::test {
namespace {

Tensor pixels(const Shape& shape) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < shape.size(); ++i) {
    bytes.push_back(static_cast<uint8_t>(random_bits({.seed = 2}, static_cast<uint64_t>(i))));
  }
  return Tensor::from(bytes, shape);
}

// Indices from the whole range.
Tensor indices(int64_t count) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<int32_t>(random_bits({.seed = 4}, static_cast<uint64_t>(i)) >> 1));
  }
  return Tensor::from(values, {count});
}

Tensor scalar(int32_t value) { return Tensor::from(std::vector<int32_t>{value}, {}); }

bool same_on_both(const Shape& shape, const AugmentOptions& options, int32_t epoch = 0, bool shifted = false) {
  const Tensor images = pixels(shape), samples = indices(shape[0]);
  const Tensor expected = augment_image(images, samples, scalar(epoch), options, 11);
  Tensor on_device = Tensor::empty({shape.size() + 1}, DType::u8, Device::cuda).slice(shifted ? 1 : 0, shape);
  on_device.copy_from(images);
  const Tensor found = augment_image(on_device, samples.to(Device::cuda), scalar(epoch).to(Device::cuda), options, 11);
  return same_bytes(found.to(Device::cpu), expected);
}

const AugmentOptions every_option[] = {{.shift = 3},
                                       {.rotate = 25},
                                       {.rotate = 180},
                                       {.cutout = 4},
                                       {.flip = true},
                                       {.shift = 512, .rotate = 180, .cutout = 512},
                                       {.shift = 2, .rotate = 10, .cutout = 3, .flip = true}};

}  // namespace

TEST_CASE("the CPU's pixels: every option, odd sizes, 1 to 4 channels, any start in memory") {
  const Poisoned poisoned;
  for (const AugmentOptions& options : every_option) {
    for (const int64_t channels : {1, 3, 4}) {
      for (const auto& [H, W] : {std::pair{28, 28}, std::pair{7, 13}, std::pair{1, 1}, std::pair{17, 2}}) {
        INFO("shift ", options.shift, ", rotate ", options.rotate, ", ", H, " x ", W, " x ", channels);
        CHECK(same_on_both({3, H, W, channels}, options));
        CHECK(same_on_both({2, H, W, channels}, options, 7, true));
      }
    }
  }
}

TEST_CASE("the largest images and the last epoch") {
  const AugmentOptions widest{.shift = 512, .rotate = 180, .cutout = 512, .flip = true};
  CHECK(same_on_both({3, max_augmented_side, 3, 1}, widest, INT32_MAX));
  CHECK(same_on_both({3, 2, max_augmented_side, 1}, widest, INT32_MAX));
}

TEST_CASE("no images, and more than there are blocks") {
  CHECK(same_on_both({0, 28, 28, 1}, every_option[6]));
  CHECK(same_on_both({3, 0, 5, 1}, every_option[6]));
  CHECK(same_on_both({4096 + 3, 2, 1, 1}, every_option[6]));
}

}  // namespace hs::test
