// The matrix product in blocks, internal to kernels/gemm/: the variants "blocked", "avx512_bf16", "avx512_fp16" and
// "amx". C is cut into tiles, K into slices. A thread packs a slice of op(B)'s columns, panel by panel, each of which
// stays in the first-level cache while the tile's rows are multiplied by it, strip by strip:
//
//                  64 columns (16 with AVX2), in vectors
//                  |--|--|--|--|
//   slice of K     |  panel    |   packed once for all rows of the tile
//   |------|       |--|--|--|--|
//   | strip|  x                    =  sums of the strip, in registers (6 x 64 with AVX-512, 6 x 16 with AVX2)
//
// After the last slice, the sums of 64 columns of a strip become C at once (kernels/gemm/finish.h), while they are in
// the caches. op(A) is read where it lies if it is f32, or pairs along its rows; other 16-bit values are packed
// once for the whole call, and f32 cells a page or more apart for each slice of a tile. A small op(B) is packed once
// for all tiles. Few tiles and a long K: K is cut into parts, whose sums are added in order. Memory delivers while
// strips are multiplied: what comes next is requested a few lines a strip. All borders depend on M, N and K only.
//
// A variant is a class:
//   struct Product {
//     using Element = ...;                 // what the factors store: float, Half or BFloat16
//     static constexpr int64_t depth;      // values of k in a cell of a panel: 1 (an f32) or 2 (a pair)
//     static constexpr int64_t panel_columns, max_steps;  // of a panel; cells of a slice along K
//     static constexpr int64_t max_rows, max_sums;        // of a tile
//     static constexpr int64_t max_shared;                // cells of an op(B) that is packed once for all tiles
//     static constexpr bool rows_first;    // packed op(A) must be (rows, steps), whole 16 x 16 blocks
//     static constexpr bool packs_strips;  // op(A) is packed for each slice if its steps are pages apart
//     struct Session;                      // alive while a thread multiplies
//     static void pack_k_rows(from, from_stride, rows, count, to, to_stride);  // a row of `to` from `depth` rows
//     static void pack_k_row(row, count, to);                                  // a row of `count` values of k
//     static void pack_strip(from, from_step, steps, to);                      // strip_slot cells of each step
//     static int64_t strip_rows(columns);
//     static constexpr bool stores_rows;  // a strip stores its rows alone, `sums_row` apart, the last argument
//     static void multiply(a, b, rows, columns, steps, sums, add);  // a strip: sums = A B, or += if add
//   };
#pragma once

#include <cstring>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"
#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm.h"

namespace hs::blocked {

inline constexpr int64_t steps_together = 16;  // that are packed at a time
inline constexpr int64_t strip_slot = 8;       // cells between the steps of a packed strip: its rows, and a gap

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
  Left at(int64_t m, int64_t s) const {  // an empty matrix has no address
    return {cells ? cells + m * row + s * step : nullptr, row, step};
  }
};

// How C and K are cut. K is cut before tiles become smaller, if there would be too few pieces for several threads: a
// large tile packs each factor for more sums, and reads long pieces of rows, which memory delivers faster. So tiles are
// as wide as C, if they may be; with op(B) packed for all of them, they need not be long.
template <class Product>
struct Cuts {
  int64_t rows_each, row_tiles;               // the last tile may have fewer rows
  int64_t blocks, blocks_each, column_tiles;  // blocks of tile_columns: in C, in a tile
  int64_t parts, part;                        // `part`: values of k in each part but the last
  int64_t shared;                             // cells of op(B), packed for all tiles, or 0

  Cuts(int64_t M, int64_t N, int64_t K) : blocks(ceil(N, tile_columns)) {
    constexpr int64_t shortest_part = 512, smallest_piece = 1 << 18;  // multiply-adds: about 2 us
    constexpr int64_t max_part_sums = 1 << 19;                        // of all parts, so that caches hold them
    constexpr int64_t short_tile = 128, blocks_of_short_tile = Product::max_sums / short_tile / tile_columns;
    const int64_t most = std::max<int64_t>(1, M * round_up(N, 16) * K / smallest_piece);
    int64_t max_blocks = std::clamp<int64_t>(blocks, 1, blocks_of_short_tile);
    int64_t max_rows = std::min(Product::max_rows, Product::max_sums / tile_columns / max_blocks / 16 * 16);
    shared = blocks * tile_columns * round_up(ceil(K, Product::depth), Product::max_steps);
    if (M < 4 * short_tile || shared > Product::max_shared) shared = 0;
    if (shared) max_rows = std::min(max_rows, short_tile);
    for (;;) {
      row_tiles = ceil(M, max_rows), column_tiles = ceil(blocks, max_blocks);
      rows_each = round_up(ceil(M, std::max<int64_t>(1, row_tiles)), 16);
      blocks_each = ceil(blocks, std::max<int64_t>(1, column_tiles));
      const int64_t wanted = std::min(ceil(std::min<int64_t>(16, most), std::max<int64_t>(1, tiles())),
                                      std::max<int64_t>(1, max_part_sums / std::max<int64_t>(1, M * N)));
      part = std::max<int64_t>(32, round_up(ceil(K, std::clamp<int64_t>(K / shortest_part, 1, wanted)), 32));
      parts = std::max<int64_t>(1, ceil(K, part));
      if (tiles() * parts >= std::min<int64_t>(8, most) || max_rows <= 16) break;
      (max_blocks > 1 && max_blocks * tile_columns >= max_rows ? max_blocks : max_rows) /= 2;
    }
    if (parts > 1) shared = 0;
  }
  int64_t tiles() const { return row_tiles * column_tiles; }

 private:
  static int64_t ceil(int64_t size, int64_t each) { return (size + each - 1) / each; }
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
  alignas(64) Cell rows[Product::panel_columns * Product::max_steps];
  pack_rows<Product>(f, first, count, k, depth, rows, Product::max_steps);
  transpose(rows, Product::max_steps, round_up(count, 16), round_up(steps_of<Product>(depth), 16), to, stride);
}

// f is (K, outer), `to` is (rows, stride).
template <class Product, class T>
void pack_steps_as_rows(const Factor<T>& f, int64_t first, int64_t count, int64_t k, int64_t depth, Cell* to,
                        int64_t stride) {
  constexpr int64_t steps_together = 64;
  alignas(64) Cell steps[steps_together * tile_columns];
  for (int64_t i = 0; i < depth; i += steps_together * Product::depth, to += steps_together) {
    const int64_t some = std::min(depth - i, steps_together * Product::depth);
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
  const int64_t strips = (rows + max_rows - 1) / max_rows, units = (rows + unit - 1) / unit;
  const int64_t each = units / std::max<int64_t>(1, strips), longer = units - each * strips;
  for (int64_t i = 0, row = 0; i < strips; ++i) {  // no division here: a strip takes about 200 ns
    const int64_t count = std::min((i < longer ? each + 1 : each) * unit, rows - row);
    body(row, count, i);
    row += count;
  }
}

// Cells of a packed strip. Not a multiple of 4 KiB, as above.
template <class Product>
inline constexpr int64_t packed_strip = (Product::max_steps + 2) * strip_slot;

// Packs `rows` rows of op(A), which lie side by side in each step, strip by strip: otherwise each step of a strip would
// be in a page of its own. `readable` cells follow the first of each step.
template <class Product>
void pack_strips(const Left& a, int64_t rows, int64_t strip_rows, int64_t readable, int64_t steps, Cell* to) {
  for (int64_t begin = 0; begin < steps; begin += steps_together) {
    const int64_t some = std::min(steps - begin, steps_together);
    for_strips(rows, strip_rows, 1, [&](int64_t row, int64_t count, int64_t i) {
      const Cell* from = a.cells + row + begin * a.step;
      Cell* strip = to + i * packed_strip<Product> + begin * strip_slot;
      if (row + strip_slot <= readable) {
        Product::pack_strip(from, a.step, some, strip);
      } else {
        for (int64_t s = 0; s < some; ++s) std::copy_n(from + s * a.step, count, strip + s * strip_slot);
      }
    });
  }
}

// Packs k .. k+depth-1 of op(B)'s columns n .. n+columns-1, panel after panel.
template <class Product, class T>
void pack_panels(const Factor<T>& b, int64_t n, int64_t columns, int64_t k, int64_t depth, Cell* to) {
  constexpr int64_t width = Product::panel_columns;
  const int64_t together = b.k_is_inner ? depth : steps_together * Product::depth;  // of the rows, from end to end
  for (int64_t i = 0; i < depth; i += together, to += steps_together * width) {
    for (int64_t j = 0; j < columns; j += width) {
      const int64_t now = std::min(width, columns - j);
      Cell* panel = to + j * Product::max_steps;
      if (b.k_is_inner) {
        pack_rows_as_steps<Product>(b, n + j, now, k, depth, panel, width);
      } else {
        pack_steps<Product>(b, n + j, now, k + i, std::min(together, depth - i), panel, width);
      }
    }
  }
}

// A tile: C's rows m .. m+rows-1 of M, columns n .. n+columns-1, of k .. k_end-1.
struct Tile {
  int64_t m, n, k, rows = 0, columns = 0, k_end = 0;
  int64_t rows_below = 0;  // that this thread likely computes next
};

// Computes a tile. The sums go to `finish`, or, if they are a part of K, to `partial` (blocks, partial_rows,
// tile_columns). op(B) may be packed already: panel n / panel_columns of the first slice is at `shared`, and that of
// the next slice_cells behind.
template <class Product, class T>
void multiply_tile(const Left& a, const Factor<T>& b, int64_t M, const Tile& tile, const Finish& finish, float* partial,
                   int64_t partial_rows, const Cell* shared, int64_t slice_cells) {
  constexpr int64_t slice = Product::max_steps * Product::depth, width = Product::panel_columns;
  alignas(64) Cell packed_panel[Product::panel_columns * Product::max_steps];
  alignas(64) Cell packed[Product::packs_strips ? (Product::max_rows / 6 + 1) * packed_strip<Product> : 1];
  alignas(64) float sums[Product::max_sums];
  const int64_t m = tile.m, n = tile.n, rows = tile.rows, columns = tile.columns, k_end = tile.k_end;
  const int64_t strip_rows = Product::strip_rows(std::min(width, columns));
  const int64_t turns = ((rows + strip_rows - 1) / strip_rows) * ((columns + width - 1) / width);
  const bool pack = Product::packs_strips && a.row == 1 && a.step >= 1024;  // less: steps share pages
  // Of one slice and panel, every strip's sums take the same place.
  const int64_t sums_row = k_end - tile.k <= slice && width == tile_columns ? 0 : tile_columns;
  float* in_place = nullptr;
  if constexpr (Product::stores_rows) in_place = partial ? nullptr : finish.in_place(m, n, columns);
  [[maybe_unused]] const typename Product::Session session{};
  int64_t k = tile.k;
  do {
    const int64_t depth = std::min(slice, k_end - k), steps = steps_of<Product>(depth), next = k + depth;
    const bool add = k > tile.k, last = next == k_end;
    const Left left = a.at(m, k / Product::depth);
    Ahead next_a, next_b;
    if (!shared && !last) {
      const int64_t more = std::min(slice, k_end - next);
      next_b = b.k_is_inner ? Ahead(b.data + n * b.stride + next, columns, more, b.stride, turns)
                            : Ahead(b.data + next * b.stride + n, more, columns, b.stride, turns);
    }
    if constexpr (Product::packs_strips) {
      const int64_t more = last ? std::min(slice, k_end - tile.k) : std::min(slice, k_end - next);
      if (pack) pack_strips<Product>(left, rows, strip_rows, M - m, steps, packed);
      if (a.row == 1) {
        if (!last) next_a = Ahead(a.at(m, next).cells, more, rows, a.step, turns);
      } else if (a.step == 1 && rows < M) {  // otherwise op(A) is in the caches already
        next_a = last ? Ahead(a.at(m + rows, tile.k).cells, tile.rows_below, more, a.row, turns)
                      : Ahead(a.at(m, next).cells, rows, more, a.row, turns);
      }
    }
    for (int64_t c = 0; c < columns; c += width) {  // a panel; j: its place in a block of 64 columns of C
      const int64_t j = c % tile_columns, block = c - j, in_block = std::min(tile_columns, columns - block);
      const int64_t now = std::min(width, columns - c);  // columns of the panel
      const Cell* panel = shared ? shared + k / slice * slice_cells + c * Product::max_steps : packed_panel;
      if (!shared) pack_panels<Product>(b, n + c, now, k, depth, packed_panel);
      for_strips(rows, strip_rows, Product::rows_first ? 16 : 1, [&](int64_t row, int64_t count, int64_t i) {
        next_a.request(), next_b.request();  // a few lines of what the next slice needs
        if (last && !partial) finish.prefetch(m + row, n + c, count, now);
        float* sum = sums + block * round_up(rows, 16) + row * sums_row;
        const Left strip = pack ? Left{packed + i * packed_strip<Product>, 1, strip_slot} : left.at(row, 0);
        if constexpr (Product::stores_rows) {
          if (in_place)  // C, f32, nothing to finish: the sums themselves
            return Product::multiply(strip, panel, count, now, steps, in_place + row * finish.N + c, add, finish.N);
        }
        Product::multiply(strip, panel, count, now, steps, sum + j, add);  // add: to the sums of the slices before
        if (!last || j + now < in_block) return;
        if (partial) {
          std::copy_n(sum, count * tile_columns, partial + block * partial_rows + row * tile_columns);
        } else {
          finish(m + row, n + block, count, in_block, sum);
        }
      });
    }
    k = next;
  } while (k < k_end);
}

// The factors and sizes of a call.
template <class Product>
struct Sizes {
  using T = typename Product::Element;
  Factor<T> a, b;
  int64_t M, N, K;
  Cuts<Product> cuts;
  int64_t left;     // cells of packed op(A)
  int64_t partial;  // floats of the parts' sums: (parts, row_tiles, blocks, rows_each, tile_columns)

  explicit Sizes(const Gemm& call)
      : a{call.a.data<T>(), call.a.shape()[1], !call.options.transpose_a},
        b{call.b.data<T>(), call.b.shape()[1], call.options.transpose_b},
        M(call.c.shape()[0]),
        N(call.c.shape()[1]),
        K(call.a.shape()[a.k_is_inner ? 1 : 0]),
        cuts(M, N, K),
        left(left_cells<Product>(a, M, K)),
        partial(cuts.parts == 1 ? 0 : cuts.parts * cuts.row_tiles * cuts.blocks * cuts.rows_each * tile_columns) {}
};

template <class Product>
int64_t workspace(const Gemm& call) {
  const Sizes<Product> sizes(call);
  return (sizes.cuts.shared + sizes.left + sizes.partial) * static_cast<int64_t>(sizeof(Cell));
}

// The whole kernel for one class of product.
template <class Product>
void gemm_blocked(const Gemm& call, Tensor& memory) {
  const Sizes<Product> s(call);
  const auto& cuts = s.cuts;
  Cell* const shared = reinterpret_cast<Cell*>(memory.mutable_data<uint8_t>());
  Cell* const cells = shared + cuts.shared;
  const Left left = pack_left<Product>(s.a, s.M, s.K, cells);
  float* partial = reinterpret_cast<float*>(cells + s.left);
  const int64_t block_size = cuts.rows_each * tile_columns;
  const int64_t slice_cells = cuts.blocks * tile_columns * Product::max_steps;
  if (cuts.shared) {
    parallel(cuts.shared / slice_cells * cuts.blocks, [&](int64_t piece, int) {
      constexpr int64_t slice = Product::max_steps * Product::depth;
      const int64_t k = piece / cuts.blocks * slice, n = piece % cuts.blocks * tile_columns;
      pack_panels<Product>(s.b, n, std::min(tile_columns, s.N - n), k, std::min(slice, s.K - k),
                           shared + k / slice * slice_cells + n * Product::max_steps);
    });
  }
  const Finish finish(call);
  const int64_t tiles = cuts.tiles();
  parallel(tiles * cuts.parts, [&](int64_t piece, int) {
    const int64_t part = piece / tiles, row = piece % tiles / cuts.column_tiles;
    const int64_t block = piece % cuts.column_tiles * cuts.blocks_each;
    const int64_t first = ((part * cuts.row_tiles + row) * cuts.blocks + block) * block_size;
    Tile tile{.m = row * cuts.rows_each, .n = block * tile_columns, .k = part * cuts.part};
    tile.rows = std::min(cuts.rows_each, s.M - tile.m);
    if (tile.rows <= 0) return;  // tiles of rounded heights may leave nothing to the last one
    tile.columns = std::min(cuts.blocks_each * tile_columns, s.N - tile.n);
    tile.k_end = std::min(s.K, tile.k + cuts.part);
    tile.rows_below = tile.n + tile.columns == s.N ? std::min(cuts.rows_each, s.M - tile.m - tile.rows) : 0;
    multiply_tile<Product>(left, s.b, s.M, tile, finish, cuts.parts == 1 ? nullptr : partial + first, cuts.rows_each,
                           cuts.shared ? shared + tile.n * Product::max_steps : nullptr, slice_cells);
  });
  if (cuts.parts > 1) {
    constexpr int64_t rows_together = 8;
    const int64_t row_blocks = cuts.rows_each / rows_together, part = cuts.row_tiles * cuts.blocks * block_size;
    parallel(cuts.row_tiles * cuts.blocks * row_blocks, [&](int64_t piece, int) {
      const int64_t tile = piece / row_blocks, row = piece % row_blocks * rows_together;
      const int64_t m = tile / cuts.blocks * cuts.rows_each + row, n = tile % cuts.blocks * tile_columns;
      const int64_t rows = std::min(rows_together, s.M - m);
      if (rows <= 0) return;
      alignas(64) float sums[rows_together * tile_columns] = {};
      const float* from = partial + tile * block_size + row * tile_columns;
      for (int64_t i = 0; i < cuts.parts; ++i, from += part) {
        for (int64_t j = 0; j < rows * tile_columns; ++j) sums[j] += from[j];
      }
      finish(m, n, rows, std::min(tile_columns, s.N - n), sums);
    });
  }
  if (call.options.epilogue == Epilogue::relu_backward) sum_columns(call.c, call.bias_gradient);
}

// Panels of pairs of 16-bit values, for the products that have an instruction for them.
template <class T>
struct PairedPanels {
  using Element = T;
  static constexpr int64_t depth = 2, panel_columns = 64, max_steps = 64, max_rows = 128, max_sums = 128 * 64,
                           max_shared = 0;
  static constexpr bool packs_strips = false, stores_rows = false;

  static void pack_k_rows(const T* from, int64_t from_stride, int64_t rows, int64_t count, Cell* to,
                          int64_t to_stride) {
    if (rows == 0 || count == 0) return;  // an empty matrix has no address
    interleave_rows(&from->bits, from_stride, rows, count, to, to_stride);
  }
  static void pack_k_row(const T* row, int64_t count, Cell* to) {
    if (count == 0) return;
    std::memcpy(to, row, static_cast<size_t>(count) * sizeof *row);
    if (count % 2 != 0) to[count / 2] = row[count - 1].bits;
  }
};

// The same in strips of 6 x 64 sums: Arithmetic::multiply<rows, vectors> has them in that many vectors of 16.
template <class T, class Arithmetic>
struct PairedStrips : PairedPanels<T> {
  struct Session {};
  static constexpr bool rows_first = false;

  static int64_t strip_rows(int64_t) { return 6; }

  static void multiply(const Left& a, const Cell* b, int64_t rows, int64_t columns, int64_t steps, float* sums,
                       bool add) {
    static_assert(tile_columns == 4 * 16);
    strips[(columns + 15) / 16 - 1][rows - 1](a, b, steps, sums, add);
  }

 private:
  using Strip = void (*)(Left, const Cell*, int64_t, float*, bool);
  template <int vectors>
  static constexpr Strip strips_of[] = {
      Arithmetic::template multiply<1, vectors>, Arithmetic::template multiply<2, vectors>,
      Arithmetic::template multiply<3, vectors>, Arithmetic::template multiply<4, vectors>,
      Arithmetic::template multiply<5, vectors>, Arithmetic::template multiply<6, vectors>};
  static constexpr const Strip* strips[] = {strips_of<1>, strips_of<2>, strips_of<3>, strips_of<4>};
};

}  // namespace hs::blocked
