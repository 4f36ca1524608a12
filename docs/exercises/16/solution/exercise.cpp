#include "docs/exercises/16/exercise.h"

#include <algorithm>
#include <array>

namespace exercise {
namespace {

// The tile whose first element is (top, left), with `rows` x `columns` elements.
void multiply_tile(const Matrix& a, const Matrix& b, Matrix& c, int64_t top, int64_t left, int64_t rows,
                   int64_t columns) {
  std::array<std::array<float, tile_columns>, tile_rows> sums{};  // a compiler that unrolls keeps them in registers
  for (int64_t k = 0; k < a.columns; ++k) {
    std::array<float, tile_columns> b_row{};
    for (int64_t j = 0; j < columns; ++j) b_row[static_cast<size_t>(j)] = b.load(k, left + j);
    for (int64_t i = 0; i < rows; ++i) {
      const float factor = a.load(top + i, k);
      auto& row = sums[static_cast<size_t>(i)];
      for (size_t j = 0; j < b_row.size(); ++j) row[j] += factor * b_row[j];
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      c.store(top + i, left + j, sums[static_cast<size_t>(i)][static_cast<size_t>(j)]);
    }
  }
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, Matrix& c) {
  for (int64_t top = 0; top < c.rows; top += tile_rows) {
    for (int64_t left = 0; left < c.columns; left += tile_columns) {
      multiply_tile(a, b, c, top, left, std::min(tile_rows, c.rows - top), std::min(tile_columns, c.columns - left));
    }
  }
}

}  // namespace exercise
