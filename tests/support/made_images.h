// Data sets of images that tests make up.
#pragma once

#include "data/io/memory_source.h"
#include "engine/random.h"

namespace hs::test {

// Images of 10 classes, in turn; `pixel(n, i)`: of image n.
template <class Pixel>
MemorySource made_images(const ImageShape& shape, PixelScale scale, int64_t count, const Pixel& pixel) {
  SampleInfo info{shape, "images", {}};
  info.classes = 10;
  info.scale = scale;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t i = 0; i < info.image_bytes(); ++i) pixels.push_back(static_cast<uint8_t>(pixel(n, i)));
    labels.push_back(static_cast<int32_t>(n % 10));
  }
  return {info, std::move(pixels), std::move(labels)};
}

// Digits that can be learnt: class c is a bright square at a place of its own, on noise. `which` tells sets apart.
inline MemorySource squares(int64_t count, uint32_t which = 1) {
  return made_images({28, 28, 1}, {0.1307f, 0.3081f}, count, [which](int64_t n, int64_t i) {
    const bool bright = i / 28 / 5 == n % 10 / 5 + 1 && i % 28 / 5 == n % 5;
    const uint32_t noise = random_bits({9, RandomPurpose::init, which, 0, 0}, static_cast<uint64_t>(n * 784 + i));
    return bright ? 200 + noise % 56 : noise % 50;
  });
}

// The same samples as the numbers that a network reads.
inline MemorySource as_numbers(const MemorySource& set) {
  const SampleInfo& info = set.info();
  std::vector<float> values;
  for (const uint8_t pixel : set.images()) values.push_back(normalized(pixel, info.scale));
  return from_tensors(info, Tensor::from(values, {info.count, info.rows, info.columns, info.channels}),
                      Tensor::from(set.labels(), {info.count}));
}

}  // namespace hs::test
