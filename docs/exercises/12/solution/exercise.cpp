#include "docs/exercises/12/exercise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace exercise {
namespace {

float dot(std::span<const float> a, std::span<const float> b) {
  float sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

float score(std::span<const float> query, const Block& block, size_t j) {
  const size_t d = query.size();
  return dot(query, block.keys.subspan(j * d, d)) / std::sqrt(static_cast<float>(d));
}

}  // namespace

Row forward(std::span<const float> query, const NextBlock& next) {
  const size_t d = query.size();
  std::vector<float> output(d);
  // Invariant: sum and output are those of the keys so far, times exp(-largest).
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  for (Block block; next(block);) {
    for (size_t j = 0; j < block.visible; ++j) {
      const float s = score(query, block, j);
      if (s > largest) {
        const float correction = std::exp(largest - s);  // 0 for the first key: largest is -inf, and s finite
        sum *= correction;
        for (float& value : output) value *= correction;
        largest = s;
      }
      const float weight = std::exp(s - largest);
      sum += weight;
      for (size_t c = 0; c < d; ++c) output[c] += weight * block.values[j * d + c];
    }
  }
  if (sum == 0) return {std::move(output), largest};
  for (float& value : output) value /= sum;
  return {std::move(output), largest + std::log(sum)};
}

void backward(std::span<const float> query, const Block& block, const Row& row, std::span<const float> doutput,
              std::span<float> dquery, std::span<float> dkeys, std::span<float> dvalues) {
  const size_t d = query.size();
  const float shared = dot(doutput, row.output);  // sum_j p_j (do . v_j), of all blocks
  std::ranges::fill(dkeys, 0.0f);
  std::ranges::fill(dvalues, 0.0f);
  for (size_t j = 0; j < block.visible; ++j) {
    const float weight = std::exp(score(query, block, j) - row.log_sum);
    const float ds =
        weight * (dot(doutput, block.values.subspan(j * d, d)) - shared) / std::sqrt(static_cast<float>(d));
    for (size_t c = 0; c < d; ++c) {
      dvalues[j * d + c] = weight * doutput[c];
      dkeys[j * d + c] = ds * query[c];
      dquery[c] += ds * block.keys[j * d + c];
    }
  }
}

}  // namespace exercise
