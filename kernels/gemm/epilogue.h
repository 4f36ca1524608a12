// The epilogues of the CPU variants of gemm. Their masks have the layout "rows": bit j % 8 of byte
// j / 8 of a row for column j, and zeros up to the end of the row. Internal to kernels/gemm/.
#pragma once

#include <algorithm>

#include "kernels/gemm/gemm.h"

namespace hs {

// Handles `columns` elements of a row of C, from a multiple of 8 on, and their bits; zeroes the bytes after them, up to
// `bytes`.
template <class T>
void relu_row(int64_t columns, T* row, uint8_t* bits, int64_t bytes) {
  std::fill_n(bits, bytes, uint8_t{0});
  for (int64_t j = 0; j < columns; ++j) {
    if (row[j] <= 0) {  // false for NaN, which is kept
      row[j] = 0;
    } else {
      bits[j / 8] |= static_cast<uint8_t>(1u << (j % 8));
    }
  }
}

template <class T>
void apply_mask(int64_t columns, const uint8_t* bits, T* row) {
  for (int64_t j = 0; j < columns; ++j) {
    if (!(bits[j / 8] & 1u << (j % 8))) row[j] = 0;
  }
}

// sums[j] = sum over rows of C, as stored, in f64 and in order. sums may be of C's type or f32.
void sum_columns(const Tensor& c, Tensor& sums);

// For the simple variants: the call's epilogue, in a pass of its own over C, which is f32 or f64. REQUIRES: it has one
void apply_epilogue(const Gemm& call);

}  // namespace hs
