// Generated digits: 28 x 28 images of ten classes that look handwritten, for tests and for machines without MNIST.
// Each is a few Bezier strokes, bent, rotated, scaled, sheared and shifted at random, drawn with a round antialiased
// pen of random width, plus slight noise. Sample i is a pure function of (seed, i): the same bytes on every machine, in
// any order (only + - * / and sqrt are used, which IEEE 754 rounds exactly; no sin or cos, which differ by library).
#pragma once

#include <span>

#include "data/io/memory_source.h"

namespace hs {

inline constexpr int64_t synthetic_side = 28;        // pixels
inline constexpr uint64_t synthetic_train_seed = 1;  // of the training split
inline constexpr uint64_t synthetic_test_seed = 2;   // of the test split

// Draws sample `index` into `pixels` (28, 28) and returns its label.
// REQUIRES: pixels.size() == 784, 0 <= index < 2^24
int32_t synthetic_digit(uint64_t seed, int64_t index, std::span<uint8_t> pixels);

// Samples 0 .. count-1.
// REQUIRES: 1 <= count <= 2^24
MemorySource synthetic_digits(uint64_t seed, int64_t count);

}  // namespace hs
