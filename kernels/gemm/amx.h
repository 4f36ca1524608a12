// The product of gemm's "amx" variant, for any tiles. Internal to kernels/gemm/amx.cpp and its test.
#pragma once

#include "kernels/cpu/amx.h"
#include "kernels/gemm/blocked.h"

namespace hs::blocked {

template <class Tiles>
struct TileProduct : PairedPanels<BFloat16> {
  using Session = amx::Session<Tiles>;
  static constexpr bool rows_first = true;  // a row of an A tile is 32 values of k

  static int64_t strip_rows(int64_t) { return 32; }

  static void multiply(const Left& a, const Cell* b, int64_t rows, int64_t columns, int64_t steps, float* sums,
                       bool add) {
    constexpr int64_t b_row = tile_columns * sizeof(Cell), sum_row = b_row;
    const int64_t a_row = a.row * static_cast<int64_t>(sizeof(Cell));
    for (int64_t n = 0; n < columns; n += 32) {
      amx::with_block<Tiles>(rows > 16 ? 2 : 1, columns - n > 16 ? 2 : 1, [&]<class Block>() {
        if (add) {
          Block::load_sums(sums + n, sum_row, 16 * tile_columns);
        } else {
          Block::zero_sums();
        }
        for (int64_t s = 0; s < steps; s += 16) {
          Block::multiply(a.cells + s, a_row, 16 * a_row, b + s * tile_columns + n, b_row, 64);
        }
        Block::store_sums(sums + n, sum_row, 16 * tile_columns);
      });
    }
  }
};

}  // namespace hs::blocked
