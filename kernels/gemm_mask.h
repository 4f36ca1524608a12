// The mask of gemm's ReLU as the CPU variants keep it, layout "rows": bit j % 8 of byte j / 8 of a row for column j.
// Internal to kernels/gemm*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hs {

// `columns` elements of a row of C from a multiple of 8 on, and their bits.
template <class T>
void relu_row(int64_t columns, T* row, uint8_t* bits) {
  std::fill_n(bits, (columns + 7) / 8, uint8_t{0});
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

}  // namespace hs
