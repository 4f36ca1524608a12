// Products of blocks that are in the caches: of f32 matrices, in strips whose sums stay in registers.
// No `#pragma once`: a file that kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA
// part, and <array> and <utility> before it.
#include "kernels/cpu/strip.h"

namespace hs::HS_ISA {

// The registers of a strip, as many sums as fit beside a row of B and one broadcast value of A:
//   AVX-512, NEON (32 registers): 6 x 4 or 8 x 3 vectors     AVX2, plain x86-64 (16): 6 x 2
// At least 8 sums keep both multiply-add units busy; loads are fewer than multiply-adds.
constexpr int max_vectors = registers == 32 ? 4 : 2, max_strip_rows = 8;
constexpr int rows_of(int vectors) { return vectors == max_vectors ? 6 : max_strip_rows; }

using Strip = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, float*, int64_t, bool);

template <int rows, int vectors>
void strip_of(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t steps, float* c,
              int64_t c_row, bool add) {
  multiply_strip<rows, vectors>(a, a_row, a_step, b, b_step, steps, c, c_row, add);
}
template <int vectors, int... rows>
constexpr std::array<Strip, max_strip_rows> strips_of(std::integer_sequence<int, rows...>) {
  return {strip_of<rows + 1, vectors>...};
}
template <int... vectors>
constexpr std::array<std::array<Strip, max_strip_rows>, max_vectors> all_strips(
    std::integer_sequence<int, vectors...>) {
  return {strips_of<vectors + 1>(std::make_integer_sequence<int, rows_of(vectors + 1)>())...};
}
constexpr auto strips = all_strips(std::make_integer_sequence<int, max_vectors>());  // [vectors - 1][rows - 1]

// Element (r, s) of A is at data[r * row + s * step]; B and C are row-major.
struct BlockA {
  const float* data;
  int64_t row, step;
};
struct BlockB {
  const float* data;
  int64_t row;
};
struct BlockC {
  float* data;
  int64_t row;
};

// Rows of a strip that is so wide.
static inline int64_t strip_rows(int64_t columns) {
  return rows_of(static_cast<int>(std::min<int64_t>(max_vectors, (columns + lanes - 1) / lanes)));
}

// C = A B, plus what C was if `add`. Whole vectors of B and C are read and written.
// REQUIRES: rows <= strip_rows(columns)
static inline void multiply_rows(const BlockA& a, int64_t rows, const BlockB& b, int64_t columns, int64_t steps,
                                 const BlockC& c, bool add) {
  const int64_t vectors = (columns + lanes - 1) / lanes;
  for (int64_t v = 0; v < vectors; v += max_vectors) {
    const auto now = static_cast<size_t>(std::min<int64_t>(max_vectors, vectors - v));
    strips[now - 1][static_cast<size_t>(rows) - 1](a.data, a.row, a.step, b.data + v * lanes, b.row, steps,
                                                   c.data + v * lanes, c.row, add);
  }
}

}  // namespace hs::HS_ISA
