// Random numbers for tests, the same in every run.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/random.h"
#include "engine/tensor.h"

namespace hs::test {

// Uniform in [low, high); `which` tells tensors apart.
inline Tensor random_tensor(const Shape& shape, uint32_t which, double low = -1, double high = 1) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = to_unit_float(random_bits({3, RandomPurpose::synthetic, which, 0, 0}, i));
    values[i] = static_cast<float>(low + (high - low) * unit);
  }
  return Tensor::from(values, shape);
}

// Whole numbers from -4 to 4, whose sums are exact.
inline Tensor whole_numbers(const Shape& shape, uint32_t which) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_bits({7, RandomPurpose::synthetic, which, 0, 0}, i) % 9) - 4;
  }
  return Tensor::from(values, shape);
}

}  // namespace hs::test
