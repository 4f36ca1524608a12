// The matrix product in blocks, internal to kernels/gemm/: the variants "blocked", "avx512_bf16" and "amx". C is cut
// into tiles of 64 columns, K into slices. A thread packs a slice of 64 columns of op(B) into a panel, which stays in
// its caches, and multiplies the tile's rows by it, strip by strip:
//
//                  64 columns, in vectors
//                  |--|--|--|--|
//   slice of K     |  panel    |   packed once for all rows of the tile
//   |------|       |--|--|--|--|
//   | strip|  x                    =  sums of the strip, in registers (6 x 64 with AVX-512)
//
// After the last slice, the strip's sums become C at once (kernels/gemm/finish.h), while they are in the first-level
// cache. op(A) is read where it lies if it is f32, or bf16 pairs along its rows; other 16-bit values are packed once
// for the whole call. Few tiles and a long K: K is cut into parts, whose sums are added in order. All borders depend on
// M, N and K only.
//
// A variant is a class:
//   struct Product {
//     using Element = ...;                 // what the factors store: float, Half or BFloat16
//     static constexpr int64_t depth;      // values of k in a cell of a panel: 1 (an f32) or 2 (a pair)
//     static constexpr bool rows_first;    // packed op(A) must be (rows, steps), whole 16 x 16 blocks
//     struct Session;                      // alive while a thread multiplies
//     static void pack_k_rows(from, from_stride, rows, count, to, to_stride);  // a row of `to` from `depth` rows
//     static void pack_k_row(row, count, to);                                  // a row of `count` values of k
//     static int64_t strip_rows(columns);
//     static void multiply(a, b, rows, columns, steps, sums, add);  // a strip: sums = A B, or += if add
//   };
#pragma once

#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"
#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm.h"

namespace hs::blocked {

inline constexpr int64_t max_tile_rows = 128;
inline constexpr int64_t max_steps = 64;  // cells of a slice along K: the panel is then 16 KiB

// A factor as it lies in memory: (outer, inner) row-major. k runs along `inner` or along `outer`.
template <class T>
struct Factor {
  const T* data;
  int64_t stride;  // elements between rows
  bool k_is_inner;
};

// op(A) in cells: that of row m and step s is cells[m * row + s * step].
struct Left {
  const Cell* cells;
  int64_t row, step;
  Left at(int64_t m, int64_t s) const { return {cells + m * row + s * step, row, step}; }
};

// How C and K are cut. Rows are cut, and then K, if there would be too few pieces for several threads.
struct Cuts {
  int64_t rows_each, row_tiles, column_tiles, parts, part;  // `part`: values of k in each part but the last

  Cuts(int64_t M, int64_t N, int64_t K) {
    constexpr int64_t shortest_part = 256, smallest_piece = 1 << 18;  // multiply-adds: about 2 us
    const int64_t enough = std::clamp<int64_t>(M * round_up(N, 16) * K / smallest_piece, 1, 8);
    column_tiles = ceil(N, tile_columns);
    rows_each = max_tile_rows;
    while (rows_each > 64 && ceil(M, rows_each) * column_tiles < enough) rows_each /= 2;
    const int64_t most = std::max<int64_t>(1, std::min(enough / tiles(M), K / shortest_part));
    part = std::max<int64_t>(32, round_up(ceil(K, most), 32));
    parts = std::max<int64_t>(1, ceil(K, part));
    while (rows_each > 16 && tiles(M) * parts < enough) rows_each /= 2;
    row_tiles = ceil(M, rows_each);
  }
  int64_t tiles() const { return row_tiles * column_tiles; }

 private:
  static int64_t ceil(int64_t size, int64_t each) { return (size + each - 1) / each; }
  int64_t tiles(int64_t M) const { return std::max<int64_t>(1, ceil(M, rows_each) * column_tiles); }
};

template <class Product>
int64_t steps_of(int64_t depth) {
  return (depth + Product::depth - 1) / Product::depth;
}

// Packs k .. k+depth-1 of `count` rows of op(A), or columns of op(B), from `first`. Whole groups of 16 are written,
// with zeros beyond the matrix. Here f is (K, outer), and `to` is (steps, stride).
template <class Product, class T>
void pack_steps(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to, int64_t stride) {
  Product::pack_k_rows(f.data + k * f.stride + first, f.stride, depth, count, to, stride);
  const int64_t steps = steps_of<Product>(depth);
  for (int64_t i = steps; i < round_up(steps, 16); ++i) std::fill_n(to + i * stride, round_up(count, 16), Cell{0});
}

// The same for f (outer, K): `to` is (rows, stride).
template <class Product, class T>
void pack_rows(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to, int64_t stride) {
  const int64_t steps = steps_of<Product>(depth);
  for (int64_t i = 0; i < round_up(count, 16); ++i, to += stride) {
    if (i < count) Product::pack_k_row(f.data + (first + i) * f.stride + k, depth, to);
    std::fill(to + (i < count ? steps : 0), to + round_up(steps, 16), Cell{0});
  }
}

// The same for the cells of the other orientation: f is (outer, K), `to` is (steps, stride).
// REQUIRES: depth is that of one slice at most
template <class Product, class T>
void pack_rows_as_steps(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to,
                        int64_t stride) {
  // Memory may hold the cells of whole blocks of 16 x 16 as they are.
  constexpr bool same_cells = sizeof(T) * Product::depth == sizeof(Cell);
  if (same_cells && f.stride % Product::depth == 0 && count % 16 == 0 && depth % (16 * Product::depth) == 0) {
    const Cell* from = reinterpret_cast<const Cell*>(f.data + first * f.stride + k);
    return transpose(from, f.stride / Product::depth, count, depth / Product::depth, to, stride);
  }
  alignas(64) Cell rows[tile_columns * max_steps];
  pack_rows<Product>(f, first, count, k, depth, rows, max_steps);
  transpose(rows, max_steps, round_up(count, 16), round_up(steps_of<Product>(depth), 16), to, stride);
}

// f is (K, outer), `to` is (rows, stride).
template <class Product, class T>
void pack_steps_as_rows(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to,
                        int64_t stride) {
  alignas(64) Cell steps[max_steps * tile_columns];
  for (int64_t i = 0; i < depth; i += max_steps * Product::depth, to += max_steps) {
    const int64_t some = std::min(depth - i, max_steps * Product::depth);
    pack_steps<Product>(f, first, count, k + i, some, steps, tile_columns);
    transpose(steps, tile_columns, round_up(steps_of<Product>(some), 16), round_up(count, 16), to, stride);
  }
}

// Cells between the rows of packed op(A). Not a multiple of 4 KiB: rows would compete for the same lines of the cache.
inline int64_t left_stride(int64_t cells) {
  const int64_t stride = round_up(cells, 16);
  return stride % 256 == 0 ? stride + 16 : stride;
}

// Whether memory has the cells of op(A) as they are: floats, or pairs along a row.
template <class Product>
bool is_read_in_place(const Factor<typename Product::Element>& f, int64_t K) {
  if (std::is_same_v<typename Product::Element, float>) return true;
  constexpr bool same_cells = sizeof(typename Product::Element) * Product::depth == sizeof(Cell);
  return same_cells && !Product::rows_first && f.k_is_inner && f.stride % Product::depth == 0 &&
         K % Product::depth == 0;
}

// Cells of the workspace for op(A).
template <class Product>
int64_t left_cells(const Factor<typename Product::Element>& f, int64_t M, int64_t K) {
  if (is_read_in_place<Product>(f, K)) return 0;
  const int64_t steps = steps_of<Product>(K);
  // A strip of tiles begins at any row and reads up to 15 rows behind the last; their sums are not stored.
  return f.k_is_inner || Product::rows_first ? round_up(M + 15, 16) * left_stride(steps)
                                             : round_up(steps, 16) * left_stride(M);
}

// Packs the whole of op(A), unless it can be read in place.
template <class Product>
Left pack_left(const Factor<typename Product::Element>& f, int64_t M, int64_t K, Cell* to) {
  if (is_read_in_place<Product>(f, K)) {
    const int64_t row = f.stride / Product::depth;
    return Left{reinterpret_cast<const Cell*>(f.data), f.k_is_inner ? row : 1, f.k_is_inner ? 1 : row};
  }
  if constexpr (std::is_same_v<typename Product::Element, float>) {
    return {};
  } else {
    const bool by_rows = f.k_is_inner || Product::rows_first;
    const int64_t stride = left_stride(by_rows ? steps_of<Product>(K) : M);
    parallel_ranges(M, f.k_is_inner ? 16 : tile_columns, [&](int64_t m, int64_t end) {
      if (f.k_is_inner) {
        pack_rows<Product>(f, m, end - m, 0, K, to + m * stride, stride);
      } else if (by_rows) {
        pack_steps_as_rows<Product>(f, m, end - m, 0, K, to + m * stride, stride);
      } else {
        pack_steps<Product>(f, m, end - m, 0, K, to + m, stride);
      }
    });
    return by_rows ? Left{to, stride, 1} : Left{to, 1, stride};
  }
}

// Calls body(first, count, strip, strips) for strips of at most max_rows rows that cover `rows`. They begin at
// multiples of `unit`, which divides max_rows, and are nearly equal. A product of tiles computes whole tiles of 16
// rows: with another unit it would keep the sums of the next strip's first rows too, and add slices of K to them twice.
template <class Body>
void for_strips(int64_t rows, int64_t max_rows, int64_t unit, const Body& body) {
  const int64_t strips = (rows + max_rows - 1) / max_rows;
  const auto border = [&](int64_t i) { return std::min(rows, round_up(i * rows / strips, unit)); };
  for (int64_t i = 0; i < strips; ++i) body(border(i), border(i + 1) - border(i), i, strips);
}

// Requests part i of n of the slice that is packed next, while the strips of this one are multiplied.
template <class T>
void prefetch(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, int64_t i, int64_t n) {
  constexpr int64_t line = 64 / sizeof(T);
  const int64_t rows = f.k_is_inner ? count : depth, columns = f.k_is_inner ? depth : count;
  const T* from = f.data + (f.k_is_inner ? first * f.stride + k : k * f.stride + first);
  for (int64_t row = i * rows / n; row < (i + 1) * rows / n; ++row) {
    for (int64_t j = 0; j < columns; j += line) __builtin_prefetch(from + row * f.stride + j);
  }
}

// Computes a tile: C's rows m .. m+rows-1, columns n .. n+columns-1, of k .. k_end-1. The sums go to `finish`, or, if
// they are a part of K, to `partial` (rows, tile_columns).
template <class Product, class T>
void multiply_tile(const Left& a, const Factor<T>& b, int64_t m, int64_t rows, int64_t n, int64_t columns, int64_t k,
                   int64_t k_end, const Finish& finish, float* partial) {
  constexpr int64_t slice = max_steps * Product::depth;
  alignas(64) Cell panel[max_steps * tile_columns];
  alignas(64) float sums[max_tile_rows * tile_columns];
  const int64_t sums_row =
      k_end - k <= slice ? 0 : tile_columns;  // of one slice, every strip's sums take the same place
  [[maybe_unused]] const typename Product::Session session{};
  const int64_t k_begin = k;
  do {
    const int64_t depth = std::min(slice, k_end - k);
    if (b.k_is_inner) {
      pack_rows_as_steps<Product>(b, n, columns, k, depth, panel, tile_columns);
    } else {
      pack_steps<Product>(b, n, columns, k, depth, panel, tile_columns);
    }
    const bool add = k > k_begin, last = k + depth == k_end;
    const Left left = a.at(m, k / Product::depth);
    k += depth;
    for_strips(rows, Product::strip_rows(columns), Product::rows_first ? 16 : 1,
               [&](int64_t row, int64_t count, int64_t i, int64_t strips) {
                 if (!last) prefetch(b, n, columns, k, std::min(slice, k_end - k), i, strips);
                 float* strip = sums + row * sums_row;
                 Product::multiply(left.at(row, 0), panel, count, columns, steps_of<Product>(depth), strip, add);
                 if (last && partial) std::copy_n(strip, count * tile_columns, partial + row * tile_columns);
                 if (last && !partial) finish(m + row, n, count, columns, strip);
               });
  } while (k < k_end);
}

// The factors and sizes of a call.
template <class Product>
struct Sizes {
  using T = typename Product::Element;
  Factor<T> a, b;
  int64_t M, N, K;
  Cuts cuts;
  int64_t left;     // cells of packed op(A)
  int64_t partial;  // floats of the parts' sums: (parts, tiles, rows_each, tile_columns)

  explicit Sizes(const Gemm& call)
      : a{call.a.data<T>(), call.a.shape()[1], !call.options.transpose_a},
        b{call.b.data<T>(), call.b.shape()[1], call.options.transpose_b},
        M(call.c.shape()[0]),
        N(call.c.shape()[1]),
        K(call.a.shape()[a.k_is_inner ? 1 : 0]),
        cuts(M, N, K),
        left(left_cells<Product>(a, M, K)),
        partial(cuts.parts == 1 ? 0 : cuts.parts * cuts.tiles() * cuts.rows_each * tile_columns) {}
};

template <class Product>
int64_t workspace(const Gemm& call) {
  const Sizes<Product> sizes(call);
  return (sizes.left + sizes.partial) * static_cast<int64_t>(sizeof(Cell));
}

// The whole kernel for one class of product.
template <class Product>
void gemm_blocked(const Gemm& call, Tensor& memory) {
  const Sizes<Product> s(call);
  const Cuts& cuts = s.cuts;
  Cell* cells = reinterpret_cast<Cell*>(memory.mutable_data<uint8_t>());
  const Left left = pack_left<Product>(s.a, s.M, s.K, cells);
  float* partial = reinterpret_cast<float*>(cells + s.left);
  const int64_t tiles = cuts.tiles();
  const Finish finish(call);
  parallel(tiles * cuts.parts, [&](int64_t piece, int) {
    const int64_t part = piece / tiles, tile = piece % tiles;
    const int64_t m = tile / cuts.column_tiles * cuts.rows_each, n = tile % cuts.column_tiles * tile_columns;
    const int64_t rows = std::min(cuts.rows_each, s.M - m), columns = std::min(tile_columns, s.N - n);
    const int64_t k = part * cuts.part, k_end = std::min(s.K, k + cuts.part);
    multiply_tile<Product>(left, s.b, m, rows, n, columns, k, k_end, finish,
                           cuts.parts == 1 ? nullptr : partial + piece * cuts.rows_each * tile_columns);
  });
  if (cuts.parts > 1) {
    constexpr int64_t rows_together = 8;
    const int64_t strips = (cuts.rows_each + rows_together - 1) / rows_together, part = tiles * cuts.rows_each;
    parallel(tiles * strips, [&](int64_t piece, int) {
      const int64_t tile = piece / strips, row = piece % strips * rows_together;
      const int64_t m = tile / cuts.column_tiles * cuts.rows_each + row, n = tile % cuts.column_tiles * tile_columns;
      const int64_t rows = std::min(rows_together, s.M - m);
      if (rows <= 0) return;
      alignas(64) float sums[rows_together * tile_columns] = {};
      const float* from = partial + (tile * cuts.rows_each + row) * tile_columns;
      for (int64_t i = 0; i < cuts.parts; ++i, from += part * tile_columns) {
        for (int64_t j = 0; j < rows * tile_columns; ++j) sums[j] += from[j];
      }
      finish(m, n, rows, std::min(tile_columns, s.N - n), sums);
    });
  }
  if (call.options.epilogue == Epilogue::relu_backward) sum_columns(call.c, call.bias_gradient);
}

// Panels of bf16 pairs, for the products that have an instruction for them.
struct PairedPanels {
  using Element = BFloat16;
  static constexpr int64_t depth = 2;

  static void pack_k_rows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t count, Cell* to,
                          int64_t to_stride) {
    if (rows == 0 || count == 0) return;  // an empty matrix has no address
    interleave_rows(&from->bits, from_stride, rows, count, to, to_stride);
  }
  static void pack_k_row(const BFloat16* row, int64_t count, Cell* to) {
    if (count == 0) return;
    std::memcpy(to, row, static_cast<size_t>(count) * sizeof *row);
    if (count % 2 != 0) to[count / 2] = row[count - 1].bits;
  }
};

}  // namespace hs::blocked
