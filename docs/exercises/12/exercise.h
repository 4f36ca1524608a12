// Exercise 12, of docs/techniques/attention.md: a row of attention that reads the keys once, in blocks, and its
// backward, which computes the weights again. Edit exercise.cpp beside this file, then run tests/exercise 12.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace exercise {

// Some keys and their values, (n, d) each. The query sees the first `visible` of them, which may be 0: the mask of a
// causal model. What comes later in the block must not be read; it may hold NaN.
struct Block {
  std::span<const float> keys, values;
  size_t visible;
};

// Stores the next block, and returns false if there is none. The spans are valid until the next call.
using NextBlock = std::function<bool(Block&)>;

// What forward leaves for backward: d + 1 numbers, however many keys there are.
struct Row {
  std::vector<float> output;  // (d): sum_j p_j v_j, where p = softmax(s) over all visible keys
  float log_sum;              // log sum_j exp(s_j), where s_j = q . k_j / sqrt(d)
};

// Asks for every block once. Scores may have any finite size. If no key is visible at all, the output is 0 and log_sum
// is -inf. Errors are at most 1e-5 of the largest query, key or value that goes into a result.
Row forward(std::span<const float> query, const NextBlock& next);

// The part of the gradients that comes from one block, given dL/d(output). Adds to dquery (d); sets dkeys and dvalues
// (n, d), which are 0 where the query does not see.
//   dv_j = p_j do,   ds_j = p_j (do . v_j - do . o),   dq += ds_j k_j / sqrt(d),   dk_j = ds_j q / sqrt(d)
void backward(std::span<const float> query, const Block& block, const Row& row, std::span<const float> doutput,
              std::span<float> dquery, std::span<float> dkeys, std::span<float> dvalues);

}  // namespace exercise
