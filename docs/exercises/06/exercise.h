// Exercise 6, of docs/chapters/07_gradient_accumulation.md: the gradient of a batch from micro-batches of different
// sizes. Edit exercise.cpp beside this file, then run tests/exercise 06.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace exercise {

// The factor for the mean gradient of each micro-batch, in the order of sizes, so that the sum is the mean gradient of
// all samples together. Sizes may differ, and may be 0: then the factor is 0.
// REQUIRES: sizes >= 0, with a sum above 0
std::vector<float> weights(std::span<const int64_t> sizes);

// The sizes of the micro-batches of each step of an epoch: `accumulate` of them, each of `batch` samples. What is left
// at the end of the epoch is a step as well: it has fewer micro-batches, and its last one may be smaller. No step is
// empty. REQUIRES: samples >= 0, batch > 0, accumulate > 0
std::vector<std::vector<int64_t>> steps(int64_t samples, int64_t batch, int64_t accumulate);

}  // namespace exercise
