// The matrix product of 16-bit factors in blocks, internal to kernels/gemm/. C is cut into tiles, K into slices. A
// thread packs a slice of both factors into panels, multiplies them into an f32 tile, and scales, biases, rounds once
// and stores the finished tile. The variants "widened", "avx512_bf16" and "amx" of gemm differ only in a class:
//   struct Product {
//     using Element = ...;                           // what the factors store: Half or BFloat16
//     static constexpr int64_t depth;                // values of k in one element of a panel: 1 (an f32) or 2 (a pair)
//     struct Session;                                // alive while a thread multiplies
//     static constexpr bool rows_first;              // panel A must be (rows, steps), not (steps, rows)
//     static void pack(row0, row1, count, to);       // one element from each of two rows (of row0 alone if depth is 1)
//     static void pack_row(row, count, to);          // a row of `count` values of k
//     static void multiply(panels, rows, columns, steps);  // panels.tile += A B
//   };
#pragma once

#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/gemm.h"

namespace hs::blocked {

inline constexpr int64_t tile_columns = 64, tile_rows = 128, max_steps = 64;

// The operands of a product, on the thread's stack.
struct Panels {
  alignas(64) Cell a[tile_rows * max_steps];      // (rows, max_steps), or (steps, tile_rows) if a_by_steps
  alignas(64) Cell b[max_steps * tile_columns];   // (steps, tile_columns)
  alignas(64) Cell other[tile_rows * max_steps];  // a panel before its transposition
  alignas(64) float tile[tile_rows * tile_columns];
  bool a_by_steps;
  int64_t a_row() const { return a_by_steps ? 1 : max_steps; }
  int64_t a_step() const { return a_by_steps ? tile_rows : 1; }
};

// A factor as it lies in memory: (outer, inner) row-major. k runs along `inner` or along `outer`.
template <class T>
struct Factor {
  const T* data;
  int64_t stride;  // elements between rows
  bool k_is_inner;
};

// Packs the slice k .. k+depth-1 of `count` rows of op(A), or columns of op(B), from `first`. Whole groups of 16 are
// written, with zeros beyond the matrix.
template <class Product, class T>
void pack_steps(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to,
                int64_t stride) {  // f is (K, outer): to is (steps, stride)
  static constexpr T zeros[tile_rows] = {};
  for (int64_t i = 0; i < depth; i += Product::depth, to += stride) {
    const T* row = f.data + (k + i) * f.stride + first;
    Product::pack(row, i + 1 < depth ? row + f.stride : zeros, count, to);
    std::fill(to + count, to + round_up(count, 16), Cell{0});
  }
  const int64_t steps = (depth + Product::depth - 1) / Product::depth;
  for (int64_t i = steps; i < round_up(steps, 16); ++i, to += stride) std::fill_n(to, round_up(count, 16), Cell{0});
}

template <class Product, class T>
void pack_rows(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to) {
  // f is (outer, K): to is (rows, max_steps)
  const int64_t steps = (depth + Product::depth - 1) / Product::depth;
  for (int64_t i = 0; i < round_up(count, 16); ++i, to += max_steps) {
    if (i < count) Product::pack_row(f.data + (first + i) * f.stride + k, depth, to);
    std::fill(to + (i < count ? steps : 0), to + round_up(steps, 16), Cell{0});
  }
}

// Panels of bf16 pairs, for the products that have an instruction for them.
struct PairedPanels {
  using Element = BFloat16;
  static constexpr int64_t depth = 2;

  static void pack(const BFloat16* row0, const BFloat16* row1, int64_t count, Cell* to) {
    interleave(&row0->bits, &row1->bits, count, to);
  }
  static void pack_row(const BFloat16* row, int64_t count, Cell* to) {
    std::memcpy(to, row, static_cast<size_t>(count) * sizeof *row);
    if (count % 2 != 0) to[count / 2] = row[count - 1].bits;
  }
};

// Rows of a tile: fewer if there would be too few tiles for several threads. Depends only on the shape.
inline int64_t rows_of_tile(int64_t M, int64_t N) {
  int64_t rows = tile_rows;
  while (rows > 32 && (M + rows - 1) / rows * ((N + tile_columns - 1) / tile_columns) < 8) rows /= 2;
  return rows;
}

// Stores a finished tile: C = alpha * tile + beta * C + bias.
template <class Out>
struct Finish {
  const GemmOptions& options;
  const Out* bias;            // or nullptr
  uint8_t* mask;              // or nullptr
  const uint8_t* saved_mask;  // or nullptr
  int64_t N;
  Out* c;

  void operator()(int64_t m, int64_t n, int64_t rows, int64_t columns, float* tile) const {
    Block<Out> block;
    for (int64_t i = m; i < m + rows; ++i, tile += tile_columns) {
      Out* to = c + i * N + n;
      if (options.alpha != 1) {
        for (int64_t j = 0; j < columns; ++j) tile[j] *= options.alpha;
      }
      if (options.beta != 0) {
        const float* before = block.read(to, columns);
        for (int64_t j = 0; j < columns; ++j) tile[j] += options.beta * before[j];
      }
      if (bias) {
        const float* values = block.read(bias + n, columns);
        for (int64_t j = 0; j < columns; ++j) tile[j] += values[j];
      }
      if (mask) {
        const int64_t bytes = n + columns == N ? gemm_mask_row(N) - n / 8 : columns / 8;
        relu_row(columns, tile, mask + i * gemm_mask_row(N) + n / 8, bytes);
      }
      if (saved_mask) apply_mask(columns, saved_mask + i * gemm_mask_row(N) + n / 8, tile);
      store_block(tile, to, columns);
    }
  }
};

template <class Product, class T, class Out>
void multiply_tiles(const Factor<T>& a, const Factor<T>& b, int64_t M, int64_t N, int64_t K,
                    const Finish<Out>& finish) {
  const int64_t rows_each = rows_of_tile(M, N), row_tiles = (M + rows_each - 1) / rows_each;
  const int64_t column_tiles = (N + tile_columns - 1) / tile_columns;
  constexpr int64_t slice = max_steps * Product::depth;
  parallel(row_tiles * column_tiles, [&](int64_t piece, int) {
    const int64_t m = piece / column_tiles * rows_each, n = piece % column_tiles * tile_columns;
    const int64_t rows = std::min(rows_each, M - m), columns = std::min(tile_columns, N - n);
    [[maybe_unused]] const typename Product::Session session{};
    Panels panels;
    std::fill_n(panels.tile, round_up(rows, 16) * tile_columns, 0.0f);
    panels.a_by_steps = !a.k_is_inner && !Product::rows_first;
    for (int64_t k = 0; k < K; k += slice) {
      const int64_t depth = std::min(slice, K - k), steps = (depth + Product::depth - 1) / Product::depth;
      if (a.k_is_inner) {
        pack_rows<Product>(a, m, rows, k, depth, panels.a);
      } else if (panels.a_by_steps) {
        pack_steps<Product>(a, m, rows, k, depth, panels.a, tile_rows);
      } else {
        pack_steps<Product>(a, m, rows, k, depth, panels.other, tile_rows);
        transpose(panels.other, tile_rows, steps, round_up(rows, 16), panels.a, max_steps);
      }
      if (b.k_is_inner) {
        pack_rows<Product>(b, n, columns, k, depth, panels.other);
        transpose(panels.other, max_steps, round_up(columns, 16), steps, panels.b, tile_columns);
      } else {
        pack_steps<Product>(b, n, columns, k, depth, panels.b, tile_columns);
      }
      Product::multiply(panels, rows, columns, steps);
    }
    finish(m, n, rows, columns, panels.tile);
  });
}

// The whole kernel for one class of product.
template <class Product>
void gemm_blocked(const Gemm& call) {
  const GemmOptions& options = call.options;
  using T = typename Product::Element;
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[options.transpose_a ? 0 : 1];
  const Factor<T> left{call.a.data<T>(), call.a.shape()[1], !options.transpose_a};
  const Factor<T> right{call.b.data<T>(), call.b.shape()[1], options.transpose_b};
  uint8_t* mask = options.epilogue == Epilogue::relu ? call.mask.mutable_data<uint8_t>() : nullptr;
  const uint8_t* saved = options.epilogue == Epilogue::relu_backward ? call.saved_mask.data<uint8_t>() : nullptr;
  const auto run = [&]<class Out>() {
    const Out* bias_data = call.bias.defined() ? call.bias.data<Out>() : nullptr;
    multiply_tiles<Product>(left, right, M, N, K,
                            Finish<Out>{options, bias_data, mask, saved, N, call.c.mutable_data<Out>()});
  };
  if (is_f32(call.c)) {
    run.template operator()<float>();
  } else {
    run.template operator()<T>();
  }
  if (options.epilogue == Epilogue::relu_backward) sum_columns(call.c, call.bias_gradient);
}

// Calls body(first, count) for strips of at most max_rows rows that cover `rows` and differ by one at most.
template <int64_t max_rows, class Body>
void for_strips(int64_t rows, const Body& body) {
  const int64_t strips = (rows + max_rows - 1) / max_rows;
  for (int64_t i = 0; i < strips; ++i) body(i * rows / strips, (i + 1) * rows / strips - i * rows / strips);
}

}  // namespace hs::blocked
