// What causal_attention's kernel on tiles does with rows of S and dP between its products, on the vectors of this CPU.
// Implemented in kernels/causal_attention/streaming.cpp. Internal to kernels/causal_attention/amx.* and its test.
#pragma once

#include <cstdint>

#include "kernels/cpu/pack.h"

namespace hs {

// `keys` and counts are multiples of 16. A split writes f32 values as the sum of two bf16 numbers, 16 bits of mantissa
// together, so that products of them are nearly as exact as those of f32.
struct AttentionRows {
  // S becomes exp(factor S - largest), where `largest` is the maximum of factor S, and 0 from key `visible` on; `sum`
  // is theirs.
  void (*exponentials)(float* S, int64_t visible, int64_t keys, float factor, float& largest, float& sum);
  // S becomes P = exp(factor S - log_sum), 0 from key `visible` on, and dP becomes dS = P (dP - sum of P dP).
  void (*differentiate)(float* S, float* dP, int64_t visible, int64_t keys, float factor, float log_sum);
  void (*split_row)(const float* values, int64_t count, uint16_t* high, uint16_t* low);
  // Of two rows, in pairs: first[j] in the lower half of cell j.
  void (*split_pair)(const float* first, const float* second, int64_t count, Cell* high, Cell* low);
};

const AttentionRows& attention_rows();

}  // namespace hs
