// The product of gemm's "amx" variant, for any tiles. Internal to kernels/gemm/amx.cpp and its test.
#pragma once

#include "kernels/cpu/amx.h"
#include "kernels/gemm/blocked.h"

namespace hs::blocked {

template <class Tiles>
struct TileProduct : PairedPanels {
  using Session = amx::Session<Tiles>;
  static constexpr bool rows_first = true;  // a row of an A tile is 32 values of k

  static void multiply(Panels& p, int64_t rows, int64_t columns, int64_t steps) {
    constexpr int64_t a_row = max_steps * sizeof(Cell), b_row = tile_columns * sizeof(Cell), sum_row = b_row;
    for (int64_t m = 0; m < rows; m += 32) {
      for (int64_t n = 0; n < columns; n += 32) {
        amx::with_block<Tiles>(rows - m > 16 ? 2 : 1, columns - n > 16 ? 2 : 1, [&]<class Block>() {
          float* sums = p.tile + m * tile_columns + n;
          Block::load_sums(sums, sum_row, 16 * tile_columns);
          for (int64_t s = 0; s < steps; s += 16) {
            Block::multiply(p.a + m * max_steps + s, a_row, 16 * a_row, p.b + s * tile_columns + n, b_row, 64);
          }
          Block::store_sums(sums, sum_row, 16 * tile_columns);
        });
      }
    }
  }
};

}  // namespace hs::blocked
