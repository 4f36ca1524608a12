// Packs 16-bit matrices in the order that products read: pairs from two rows, and transposed blocks. With AVX-512 if
// the machine has it. CPU files only.
#pragma once

#include <cstdint>

namespace hs {

// 32 bits of a packed matrix: a float, or two 16-bit values, the first in the lower half.
using Cell [[gnu::may_alias]] = uint32_t;

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Row i of `to` is the pairs (row 2 i, row 2 i + 1) of `from`; the last of an odd number of rows is paired with zeros,
// and the pairs after `count` are zero up to a multiple of 16.
void interleave_rows(const uint16_t* from, int64_t from_stride, int64_t rows, int64_t count, Cell* to,
                     int64_t to_stride);

// Three rows and ones in bf16, one element of each after the other: to[2 i] is the pair (row 0, row 1) of element i,
// to[2 i + 1] the pair (row 2, 1).
void interleave_with_ones(const uint16_t* from, int64_t from_stride, int64_t count, Cell* to);

// to[j][i] = from[i][j], in whole blocks of 16 x 16: rows and columns are rounded up.
void transpose(const Cell* from, int64_t from_stride, int64_t rows, int64_t columns, Cell* to, int64_t to_stride);

}  // namespace hs
