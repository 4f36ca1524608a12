// Both gradients of a convolution whose dy has few zeros, such as a batch norm's: every element of dy is taken, where
// direct_backward.cpp and avx512_bf16_backward.cpp list the nonzero ones, so that sums stay in registers.
//   dx is a convolution of dy with the weights turned around (groups.h), by the tiles of the forward pass.
//   dweight sums over pixels: a tile of some output channels by vectors of taps, which lie side by side in the image.
//   Each element of dy is broadcast to the vectors, and each vector serves all channels of the tile.
// All zeros of dy and the padding are multiplied, and an inf or NaN in x or weight makes NaN of them. With fewer
// channels than a vector has lanes, or pairs of bf16 and an odd output width, so are zeros around the data or in the
// rest of a tile, and NaN reaches elements that do not use the inf. Internal to the variants "direct" and
// "avx512_bf16", which take this way if dy has few zeros. They differ in a cell (kernels/cpu/pack.h), the 32 bits that
// one lane multiplies: a float, or two bf16, which vdpbf16ps multiplies and adds. The two are output channels in dx,
// and pixels side by side in dweight and dbias.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/conv2d/groups.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/pack.h"

namespace hs {

// Whether dy has too few zeros for lists of the others to pay. It looks at some hundred elements.
bool has_few_zeros(const Conv2dBackward& call);
// With less in a kernel row, "direct" has a better way.
inline bool fills_vectors(const Conv2dSizes& s) { return s.KW * s.C >= 16; }

// f32, or 16 bits that are widened. The second goes by lists of the elements of dy that are not zero.
void dense_backward(const Conv2dBackward& call, Tensor& workspace);
int64_t dense_workspace(const Conv2dBackward& call);  // bytes
void lists_backward(const Conv2dBackward& call, Tensor& workspace);
int64_t lists_workspace(const Conv2dBackward& call);

// bf16 with AVX-512 BF16. REQUIRES: OC is even
void dense_backward_bf16(const Conv2dBackward& call, Tensor& workspace);
int64_t dense_workspace_bf16(const Conv2dBackward& call);

namespace {

constexpr int64_t max_tile_pixels = 12, max_panel = 64;  // of a tile of dx; its panel in floats

// Pixels of an image or of dy, and the taps that each sees: `KH` rows of `run` elements.
template <class Element>
struct DxTile {
  const Element* fields[max_tile_pixels];
  const Cell* weight;  // (KH * run in cells, channels), packed
  int64_t KH, run, row;
  float* outputs[max_tile_pixels];  // the channels of each pixel; of bf16 one after the other
};

alignas(64) constexpr float no_bias[max_panel] = {};

// Some rows of dy, from the first channel of a tile, and the image from the first tap. The distances are in cells.
struct DweightTile {
  const Cell *dy, *x;
  int64_t rows, groups;              // cells of pixels in a row of dy
  int64_t dy_group, x_group, x_row;  // from one to the next
  float* dweight;
  int64_t field;  // floats from one channel's weights to the next one's
};

// Runs Tile::run<vectors, channels>(t), which keeps the sums of so many in registers, at most Tile::taps and
// Tile::channels.
template <class Tile, int vectors, int... channels>
void run_dweight_of(int64_t count, const DweightTile& t, std::integer_sequence<int, channels...>) {
  constexpr void (*tiles[])(const DweightTile&) = {Tile::template run<vectors, channels + 1>...};
  tiles[count - 1](t);
}
template <class Tile>
void run_dweight(int64_t channels, int64_t vectors, const DweightTile& t) {
  constexpr auto counts = std::make_integer_sequence<int, Tile::channels>();
  if (vectors == 1) return run_dweight_of<Tile, 1>(channels, t, counts);
  if (vectors == 2) return run_dweight_of<Tile, 2>(channels, t, counts);
  run_dweight_of<Tile, Tile::taps>(channels, t, counts);
}

// What an instruction set has. Element: float or BFloat16
template <class Element>
struct DenseTiles {
  int64_t lanes, panel;  // floats of a vector, and of the vectors of output channels in a tile of dx
  int (*tile_pixels)(int vectors);
  void (*run_dx)(int vectors, const DxTile<Element>&);
  // (K, OC) -> panels, of a convolution with s.OC channels that are filled up to padded_oc.
  void (*pack)(const Conv2dSizes& s, int64_t padded_oc, const Element* weight, Cell* packed);
  int64_t channels, taps;  // of a tile of dweight, at most: output channels, and vectors of taps
  void (*run_dweight)(int64_t channels, int64_t vectors, const DweightTile&);
  // An image in cells, for dweight: each element with the one that lies `distance` behind it, in the next pixel. May be
  // the image itself.
  const Cell* (*to_cells)(const Element* image, int64_t distance, int64_t count, Cell* cells);
  // dbias[channel] += the sum of `count` rows of cells.
  void (*add_dbias)(const Cell* dy, int64_t count, int64_t row, int64_t channels, float* dbias);
};

template <class Element>
constexpr int64_t per_cell = sizeof(Cell) / sizeof(Element);

template <class Element>
struct DenseMemory : Parts {
  const Conv2dSizes& s;
  const int64_t lanes;
  // Of the padded image, in elements; the last vector of taps may run over its end, and a pair has its pixel's
  // neighbour.
  const int64_t image_row = (s.W + 2 * s.padding) * s.C, image = round_up((s.H + 2 * s.padding) * image_row, 32);
  const int64_t cells_of_image = image + lanes;
  // Of dy with a border, in elements.
  const int64_t top = (s.KH - 1) / s.stride, left = (s.KW - 1) / s.stride;
  const int64_t dy_row = (left + std::max(s.OW, (s.W - 1 + s.padding) / s.stride + 1)) * s.OC;
  const int64_t dy_rows = top + std::max(s.OH, (s.H - 1 + s.padding) / s.stride + 1);
  // Cells of pixels in a row of dy, and from one to the next.
  const int64_t cells = (s.OW + per_cell<Element> - 1) / per_cell<Element>;
  const int64_t dy_cell = per_cell<Element> == 1 ? s.OC : round_up(s.OC, 16);
  const int64_t padded_c = round_up(s.C, lanes);
  const int64_t padded_run = round_up(s.KW * s.C, lanes), field = s.KH * padded_run;  // floats of dweight
  const int64_t groups = conv2d_groups(s);
  Cell* weights = take<Cell>(s.KH * s.KW * s.OC / per_cell<Element> * padded_c);  // of all phases
  Element* turned = take<Element>(s.OC * s.K());                                  // of a phase: (K, C)
  Each<float> dweights = each<float>(s.OC * field, groups);                       // of a group: (OC, KH, padded run)
  Each<float> dbiases = each<float>(dy_cell, groups);                             // (dy_cell)
  Each<Element> images = each<Element>(image + 16 + s.stride * s.C);              // of a thread
  Each<uint32_t> image_cells = each<uint32_t>(per_cell<Element> == 1 ? 0 : cells_of_image);
  Each<Element> planes = each<Element>(round_up(dy_rows * dy_row, 32));
  Each<Element> own_dy = each<Element>(s.OH * s.OW * s.OC);
  Each<uint32_t> dy_cells = each<uint32_t>(per_cell<Element> == 1 ? 0 : s.OH * cells * dy_cell);
  Each<float> results = each<float>(max_tile_pixels * max_panel);
};

// dy of a sample, with zeros where ReLU made y zero: itself, or in `own`. y: nullptr without ReLU
template <class T, class Element>
const Element* sample_of(const T* dy, const T* y, int64_t count, Element* own) {
  if constexpr (std::is_same_v<T, Element>) {
    if (!y) return dy;
  }
  copy_elements(dy, count, own);
  if (y) through_relu(y, own, count, own);
  return own;
}

template <class T, class Element>
void pack_turned_weights(const DenseMemory<Element>& m, const DenseTiles<Element>& tiles, const T* weight) {
  const Conv2dSizes& s = m.s;
  Cell* packed = m.weights;
  for_phases(s, [&](const Phase& rows, const Phase& columns) {
    Element* to = m.turned;
    for (int64_t kh = rows.taps - 1; kh >= 0; --kh) {
      for (int64_t kw = columns.taps - 1; kw >= 0; --kw, to += s.OC * s.C) {
        const int64_t tap = (rows.first + kh * s.stride) * s.KW + columns.first + kw * s.stride;
        for (int64_t c = 0; c < s.C; ++c) {
          for (int64_t oc = 0; oc < s.OC; ++oc) {
            const T value = weight[(tap * s.C + c) * s.OC + oc];
            if constexpr (std::is_same_v<T, Element>) {
              to[oc * s.C + c] = value;
            } else {
              to[oc * s.C + c] = to_computing(value);
            }
          }
        }
      }
    }
    Conv2dSizes phase = s;  // a forward pass from dy to dx
    phase.KH = rows.taps, phase.KW = columns.taps, phase.C = s.OC, phase.OC = s.C;
    tiles.pack(phase, m.padded_c, m.turned, packed);
    packed += phase.K() / per_cell<Element> * m.padded_c;
  });
}

template <class T, class Element>
void write_dx(const DenseMemory<Element>& m, const DenseTiles<Element>& tiles, const Element* plane, float* results,
              Ahead next, T* dx) {
  const Conv2dSizes& s = m.s;
  const Cell* weights = m.weights;
  for_phases(s, [&](const Phase& rows, const Phase& columns) {
    const int64_t width = columns.end - columns.begin, pixels = (rows.end - rows.begin) * width;
    const int64_t to_row = s.stride * s.W * s.C, to_column = s.stride * s.C;
    T* const to = dx + (rows.pixel * s.W + columns.pixel) * s.C;
    if (rows.taps * columns.taps == 0) {  // a kernel smaller than the stride does not see these pixels
      for (int64_t i = 0; i < rows.end - rows.begin; ++i) {
        for (int64_t j = 0; j < width; ++j) std::fill_n(to + i * to_row + j * to_column, s.C, T{});
      }
      return;
    }
    const Element* from =
        plane + (rows.begin - rows.taps + 1 + m.top) * m.dy_row + (columns.begin - columns.taps + 1 + m.left) * s.OC;
    const int64_t run = columns.taps * s.OC, cells = rows.taps * run / per_cell<Element>;
    for (int64_t first = 0; first < m.padded_c; first += tiles.panel) {
      const int64_t channels = std::min(tiles.panel, m.padded_c - first), valid = std::min(channels, s.C - first);
      const int vectors = static_cast<int>(channels / tiles.lanes);
      const int64_t tile_pixels = tiles.tile_pixels(vectors);
      const bool in_place = std::is_same_v<T, float> && valid == channels;
      DxTile<Element> tile{{}, weights + first * cells, rows.taps, run, m.dy_row, {}};
      for (int64_t pixel = 0, row = 0, column = 0; pixel < pixels; pixel += tile_pixels) {
        const int64_t count = std::min(tile_pixels, pixels - pixel);
        T* places[max_tile_pixels];
        next.request();
        for (int64_t i = 0; i < count; ++i) {
          places[i] = to + row * to_row + column * to_column + first;
          tile.fields[i] = from + row * m.dy_row + column * s.OC;
          if (++column == width) column = 0, ++row;
        }
        for (int64_t i = 0; i < tile_pixels; ++i) {
          if (i >= count) tile.fields[i] = tile.fields[count - 1];  // a short last tile repeats its last pixel
          tile.outputs[i] =
              in_place ? reinterpret_cast<float*>(places[std::min(i, count - 1)]) : results + i * channels;
        }
        tiles.run_dx(vectors, tile);
        const int64_t together = s.stride == 1 && channels == s.C ? count : 1;  // pixels side by side in dx
        for (int64_t i = 0; i < count && !in_place; i += together) {
          store_block(results + i * channels, places[i], together * valid);
        }
      }
    }
    weights += cells * m.padded_c;
  });
}

// A tile's sums are loaded and stored once for so many cells of pixels or more, which stay in the first-level cache.
constexpr int64_t cells_of_tile = 64;

template <class Element>
void add_dweight(const DenseMemory<Element>& m, const DenseTiles<Element>& tiles, const Cell* cells, const Cell* dy,
                 Ahead next, float* dweight) {
  const Conv2dSizes& s = m.s;
  const int64_t step = (cells_of_tile + m.cells - 1) / m.cells;
  const int64_t channel_tiles = (s.OC + tiles.channels - 1) / tiles.channels;
  DweightTile tile{nullptr, nullptr, 0, m.cells, m.dy_cell, per_cell<Element> * s.stride * s.C, s.stride * m.image_row,
                   nullptr, m.field};
  for (int64_t oh = 0; oh < s.OH; oh += step) {
    tile.rows = std::min(step, s.OH - oh);
    for (int64_t kh = 0; kh < s.KH; ++kh) {
      for (int64_t k = 0; k < m.padded_run; k += tiles.taps * tiles.lanes) {
        const int64_t vectors = std::min(tiles.taps, (m.padded_run - k) / tiles.lanes);
        next.request();
        tile.x = cells + (oh * s.stride + kh) * m.image_row + k;
        for (int64_t i = 0, oc = 0, channels = 0; i < channel_tiles; ++i, oc += channels) {  // nearly equal
          channels = s.OC / channel_tiles + (i < s.OC % channel_tiles ? 1 : 0);
          tile.dy = dy + oh * m.cells * m.dy_cell + oc;
          tile.dweight = dweight + oc * m.field + kh * m.padded_run + k;
          tiles.run_dweight(channels, vectors, tile);
        }
      }
    }
  }
}

// dy in cells.
inline const Cell* dy_in_cells(const Conv2dSizes& s, const BFloat16* dy, Cell* cells, int64_t row) {
  for (int64_t h = 0; h < s.OH; ++h) {
    interleave_rows(&dy[h * s.OW * s.OC].bits, s.OC, s.OW, s.OC, cells + h * row, round_up(s.OC, 16));
  }
  return cells;
}
inline const Cell* dy_in_cells(const Conv2dSizes&, const float* dy, Cell*, int64_t) {
  return reinterpret_cast<const Cell*>(dy);
}

// T: what the tensors store
template <class T, class Element>
void dense_backward_from(const Conv2dBackward& call, Tensor& workspace, const DenseTiles<Element>& tiles) {
  const Conv2dSizes& s = call.sizes;
  const DenseMemory<Element> m{Parts(workspace), s, tiles.lanes};
  const int64_t image_size = s.H * s.W * s.C, dy_size = s.OH * s.OW * s.OC;
  // Where the tensor has what a tile reads, it is read there.
  const bool same = std::is_same_v<T, float>, whole_vectors = s.KW * s.C % tiles.lanes == 0;
  const bool image_in_place = same && s.padding == 0 && whole_vectors;
  const bool dy_in_place =
      same && m.top + m.left == 0 && m.dy_row == s.OW * s.OC && (s.H - 1 + s.padding) / s.stride < s.OH;
  const T *images = call.x.data<T>(), *dout = call.dy.data<T>();
  const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
  T* din = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
  if (din) pack_turned_weights(m, tiles, call.weight.data<T>());

  // What is read or written next, in so many turns or a few less.
  const auto next_image = [&](const auto* first, int64_t n, int64_t size, int64_t turns) {
    return n + 1 < s.N ? Ahead(first + (n + 1) * size, 1, size, 0, std::max<int64_t>(1, turns)) : Ahead();
  };
  parallel(m.groups, [&](int64_t group, int thread) {
    float *dweight = m.dweights.zeroed(group), *dbias = m.dbiases.zeroed(group);
    // Their borders stay zero.
    Element* image = image_in_place ? nullptr : m.images.zeroed(thread);
    Element* plane = dy_in_place ? nullptr : m.planes.zeroed(thread);
    for (int64_t n = group * s.N / m.groups; n < (group + 1) * s.N / m.groups; ++n) {
      const Element* dy = sample_of(dout + n * dy_size, y ? y + n * dy_size : nullptr, dy_size, m.own_dy[thread]);
      if (din) {
        if (!dy_in_place) {
          copy_rows(dy, s.OH, s.OW * s.OC, plane + m.top * m.dy_row + m.left * s.OC, m.dy_row);
        }
        write_dx(m, tiles, dy_in_place ? dy : plane, m.results[thread],
                 next_image(din, n, image_size, s.H * s.W / max_tile_pixels), din + n * image_size);
      }
      const Cell* dy_cells = dy_in_cells(s, dy, m.dy_cells[thread], m.cells * m.dy_cell);
      if (call.dbias.defined()) tiles.add_dbias(dy_cells, s.OH * m.cells, m.dy_cell, s.OC, dbias);
      if (!call.dweight.defined()) continue;
      const Element* field = image;
      if constexpr (std::is_same_v<T, float>) {
        if (image_in_place) field = images + n * image_size;
      }
      if (field == image) {
        copy_rows(images + n * image_size, s.H, s.W * s.C, image + s.padding * (m.image_row + s.C), m.image_row);
      }
      const Cell* cells = tiles.to_cells(field, s.stride * s.C, m.cells_of_image, m.image_cells[thread]);
      add_dweight(m, tiles, cells, dy_cells, next_image(images, n, image_size, s.OH * s.KH / 8), dweight);
    }
  });

  const int64_t run = s.KW * s.C;
  add_groups(s, m.dweights, call.accumulate, call.dweight, m.field,
             [&](int64_t k) { return k / run * m.padded_run + k % run; });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

}  // namespace
}  // namespace hs
