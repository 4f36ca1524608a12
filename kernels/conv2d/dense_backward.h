// Both gradients of a convolution whose dy has few zeros, such as a batch norm's: every element of dy is taken, where
// kernels/conv2d/direct_backward.h and avx512_bf16_backward.cpp list the nonzero ones, so that sums stay in registers.
//   dx is a convolution of dy with the weights turned around, by the tiles of the forward pass. With a stride s the
//   pixels of dx whose row and column have the same remainders by s see the same weights: s * s convolutions, one for
//   each pair of remainders, with every s-th row and column of the kernel.
//   dweight sums over pixels: a tile of several taps by one or two vectors of output channels; each tap is broadcast.
// Internal to the variants "direct" and "avx512_bf16", which take this way if dy has few zeros. They differ in a cell
// (kernels/cpu/pack.h), the 32 bits that one lane multiplies: a float, or two bf16, which vdpbf16ps multiplies and
// adds. The two are output channels in dx, and pixels side by side in dweight and dbias.
#pragma once

#include <algorithm>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

namespace hs {

// Whether dy has too few zeros for lists of the others to pay. It looks at some thousand elements.
bool has_few_zeros(const Conv2dBackward& call);
// With less in a kernel row, "direct" has a better way.
inline bool fills_vectors(const Conv2dSizes& s) { return s.KW * s.C >= 16; }

// f32, or 16 bits that are widened.
void dense_backward(const Conv2dBackward& call, Tensor& workspace);
int64_t dense_workspace(const Conv2dBackward& call);  // bytes

// bf16 with AVX-512 BF16. REQUIRES: OC is even
void dense_backward_bf16(const Conv2dBackward& call, Tensor& workspace);
int64_t dense_workspace_bf16(const Conv2dBackward& call);

namespace {

constexpr int64_t most_tile_pixels = 12, most_panel = 64;  // of a tile of dx; its panel in floats

// Pixels of an image or of dy, and the taps that each sees: `KH` rows of `run` elements.
template <class Element>
struct DxTile {
  const Element* fields[most_tile_pixels];
  const Cell* weight;  // (KH * run in cells, channels), packed
  int64_t KH, run, row;
  float* to;  // (pixels, channels)
};

alignas(64) constexpr float no_bias[most_panel] = {};

// Some rows of dy, and the first tap of a tile in the image. The distances are in cells.
struct DweightTile {
  const Cell *dy, *x;
  int64_t rows, groups;              // cells of pixels in a row of dy
  int64_t dy_group, x_group, x_row;  // from one to the next
  float* dweight;
  int64_t dweight_row;
};

struct DweightTileSize {
  int64_t taps;
  void (*run[3])(const DweightTile&);  // by the number of vectors; nullptr: does not fit the registers
};

// What an instruction set has. Element: float or BFloat16
template <class Element>
struct DenseTiles {
  int64_t lanes, panel;  // floats of a vector, and of the vectors of output channels in a tile of dx
  int (*tile_pixels)(int vectors);
  void (*run_dx)(int vectors, const DxTile<Element>&);
  // (K, OC) -> panels, of a convolution with s.OC channels that are filled up to padded_oc.
  void (*pack)(const Conv2dSizes& s, int64_t padded_oc, const Element* weight, Cell* packed);
  DweightTileSize dweight[4];  // falling, the last with one tap; [0] is for one vector
  // An image in cells, for dweight: each element with the one that lies `distance` behind it, in the next pixel. May be
  // the image itself.
  const Cell* (*to_cells)(const Element* image, int64_t distance, int64_t count, Cell* cells);
  // dbias[channel] += the sum of `count` cells, which lie `distance` apart.
  void (*add_dbias)(const Cell* dy, int64_t count, int64_t distance, float* dbias);
};

template <class Element>
constexpr int64_t per_cell = sizeof(Cell) / sizeof(Element);

// The pixels of dx in one direction that see the kernel's elements first, first + stride, ... Pixel
// stride * u + first - padding sees dy[u], dy[u - 1], ...: `taps` of them.
struct Phase {
  int64_t first, taps, begin, end;  // u = begin ... end - 1
  Phase(int64_t first_, int64_t kernel, int64_t size, const Conv2dSizes& s) : first(first_) {
    taps = first < kernel ? (kernel - first + s.stride - 1) / s.stride : 0;
    begin = (s.padding - first + s.stride - 1) / s.stride;
    end = (size - 1 + s.padding - first + s.stride) / s.stride;
  }
};

template <class Element>
struct DenseLayout {
  int64_t image_row, image;                    // of the padded image, in elements
  int64_t top, left, dy_row, plane;            // border of dy, and its row and size with the border, in elements
  int64_t groups, padded_oc, padded_c;         // cells of pixels in a row of dy
  int64_t dx_weights;                          // cells of the weights of all phases
  int64_t weights, turned, dweights, dbiases;  // offsets in bytes from here on
  int64_t images, cells, planes, own_dy, dy_cells, results, size;
  DenseLayout(const Conv2dSizes& s, int64_t lanes) {
    image_row = (s.W + 2 * s.padding) * s.C;
    image = round_up((s.H + 2 * s.padding) * image_row, 32);
    top = (s.KH - 1) / s.stride, left = (s.KW - 1) / s.stride;
    dy_row = (left + std::max(s.OW, (s.W - 1 + s.padding) / s.stride + 1)) * s.OC;
    plane = round_up((top + std::max(s.OH, (s.H - 1 + s.padding) / s.stride + 1)) * dy_row, 32);
    groups = (s.OW + per_cell<Element> - 1) / per_cell<Element>;
    padded_oc = round_up(s.OC, lanes), padded_c = round_up(s.C, lanes);
    dx_weights = s.KH * s.KW * s.OC / per_cell<Element> * padded_c;
    int64_t total = 0;
    const auto next = [&total](int64_t bytes) { return (total += round_up(bytes, 64)) - round_up(bytes, 64); };
    const auto each_thread = [&next](int64_t bytes) { return next(threads() * bytes); };
    weights = next(dx_weights * 4);
    turned = next(s.OC * s.K() * static_cast<int64_t>(sizeof(Element)));  // of a phase: (K, C)
    dweights = next(conv2d_groups(s) * s.K() * padded_oc * 4);            // (groups, K, padded OC)
    dbiases = next(conv2d_groups(s) * padded_oc * 4);                     // (groups, padded OC)
    images = each_thread(padded_image(s) * static_cast<int64_t>(sizeof(Element)));
    cells = each_thread(per_cell<Element> == 1 ? 0 : image * 4);
    planes = each_thread(plane * static_cast<int64_t>(sizeof(Element)));
    own_dy = each_thread(s.OH * s.OW * s.OC * static_cast<int64_t>(sizeof(Element)));
    dy_cells = each_thread(s.OH * groups * padded_oc * 4);
    results = each_thread(most_tile_pixels * most_panel * 4);
    size = total;
  }
  // With what the neighbour of the last pixel has.
  int64_t padded_image(const Conv2dSizes& s) const { return image + s.stride * s.C; }
};

// Elements as they are computed with: copied, or widened.
template <class T, class Element>
void copy_elements(const T* from, int64_t count, Element* to) {
  if constexpr (std::is_same_v<T, Element>) {
    std::copy_n(from, count, to);
  } else {
    widen(from, to, count);
  }
}

// dy of a sample, with zeros where ReLU made y zero: itself, or in `own`. y: nullptr without ReLU
template <class T, class Element>
const Element* sample_of(const T* dy, const T* y, int64_t count, Element* own) {
  if constexpr (std::is_same_v<T, Element>) {
    if (!y) return dy;
  }
  copy_elements(dy, count, own);
  for (int64_t i = 0; y && i < count; ++i) {
    const Element gradient = own[i];  // read on both paths, so that the compiler may use vectors
    own[i] = is_closed(y[i]) ? Element{} : gradient;
  }
  return own;
}

// Rows of `count` elements to rows of `to_row`, with zeros around them up to `size`. first: the first one's place
template <class T, class Element>
void copy_bordered(const T* from, int64_t rows, int64_t count, Element* to, int64_t to_row, int64_t first,
                   int64_t size) {
  std::fill_n(to, size, Element{});
  for (int64_t row = 0; row < rows; ++row) copy_elements(from + row * count, count, to + row * to_row + first);
}

// Calls body(rows, columns, their cells of weights, cells before them) for the phases of dx.
template <class Element, class Body>
void for_phases(const Conv2dSizes& s, int64_t padded_c, const Body& body) {
  int64_t before = 0;
  for (int64_t a = 0; a < s.stride; ++a) {
    for (int64_t b = 0; b < s.stride; ++b) {
      const Phase rows(a, s.KH, s.H, s), columns(b, s.KW, s.W, s);
      body(rows, columns, before);
      before += rows.taps * columns.taps * s.OC / per_cell<Element> * padded_c;
    }
  }
}

template <class T, class Element>
void pack_turned_weights(const Conv2dSizes& s, const DenseLayout<Element>& layout, const DenseTiles<Element>& tiles,
                         const T* weight, Element* turned, Cell* packed) {
  for_phases<Element>(s, layout.padded_c, [&](const Phase& rows, const Phase& columns, int64_t before) {
    Element* to = turned;
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
    tiles.pack(phase, layout.padded_c, turned, packed + before);
  });
}

template <class T, class Element>
void write_dx(const Conv2dSizes& s, const DenseLayout<Element>& layout, const DenseTiles<Element>& tiles,
              const Element* plane, const Cell* weights, float* results, T* dx) {
  for_phases<Element>(s, layout.padded_c, [&](const Phase& rows, const Phase& columns, int64_t before) {
    const int64_t width = columns.end - columns.begin, pixels = (rows.end - rows.begin) * width;
    const int64_t run = columns.taps * s.OC, cells = rows.taps * run / per_cell<Element>;
    for (int64_t first = 0; first < layout.padded_c; first += tiles.panel) {
      const int64_t channels = std::min(tiles.panel, layout.padded_c - first), valid = std::min(channels, s.C - first);
      const int vectors = static_cast<int>(channels / tiles.lanes);
      const int64_t tile_pixels = tiles.tile_pixels(vectors);
      DxTile<Element> tile{{}, weights + before + first * cells, rows.taps, run, layout.dy_row, results};
      for (int64_t pixel = 0; pixel < pixels; pixel += tile_pixels) {
        const int64_t count = std::min(tile_pixels, pixels - pixel);
        for (int64_t i = 0; i < tile_pixels; ++i) {
          const int64_t o = pixel + std::min(i, count - 1);  // a short last tile repeats its last pixel
          tile.fields[i] = plane + (rows.begin + o / width - rows.taps + 1 + layout.top) * layout.dy_row +
                           (columns.begin + o % width - columns.taps + 1 + layout.left) * s.OC;
        }
        tiles.run_dx(vectors, tile);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t h = (rows.begin + (pixel + i) / width) * s.stride + rows.first - s.padding;
          const int64_t w = (columns.begin + (pixel + i) % width) * s.stride + columns.first - s.padding;
          store_block(results + i * channels, dx + (h * s.W + w) * s.C + first, valid);
        }
      }
    }
  });
}

// A tile's sums are loaded and stored once for so many cells of pixels or more, which stay in the first-level cache.
constexpr int64_t cells_of_tile = 64;

template <class Element>
void add_dweight(const Conv2dSizes& s, const DenseLayout<Element>& layout, const DenseTiles<Element>& tiles,
                 const Cell* cells, const Cell* dy, float* dweight) {
  const int64_t run = s.KW * s.C, step = (cells_of_tile + layout.groups - 1) / layout.groups;
  const int64_t x_group = per_cell<Element> * s.stride * s.C;
  for (int64_t oh = 0; oh < s.OH; oh += step) {
    for (int64_t kh = 0; kh < s.KH; ++kh) {
      for (int64_t k = 0; k < run;) {
        const DweightTileSize* tile = layout.padded_oc > tiles.lanes ? tiles.dweight + 1 : tiles.dweight;
        while (tile->taps > run - k) ++tile;
        for (int64_t oc = 0, vectors = 0; oc < layout.padded_oc; oc += vectors * tiles.lanes) {
          vectors = layout.padded_oc - oc >= 2 * tiles.lanes ? 2 : 1;
          tile->run[vectors]({dy + oh * layout.groups * layout.padded_oc + oc,
                              cells + (oh * s.stride + kh) * layout.image_row + k, std::min(step, s.OH - oh),
                              layout.groups, layout.padded_oc, x_group, s.stride * layout.image_row,
                              dweight + (kh * run + k) * layout.padded_oc + oc, layout.padded_oc});
        }
        k += tile->taps;
      }
    }
  }
}

// A row of dy in cells, filled up with zeros.
inline void write_cells(const Conv2dSizes& s, const BFloat16* dy, Cell* cells, int64_t padded_oc) {
  interleave_rows(&dy->bits, s.OC, s.OW, s.OC, cells, padded_oc);
}
inline void write_cells(const Conv2dSizes& s, const float* dy, Cell* cells, int64_t padded_oc) {
  float* to = reinterpret_cast<float*>(cells);
  for (int64_t pixel = 0; pixel < s.OW; ++pixel, dy += s.OC, to += padded_oc) {
    std::fill(std::copy_n(dy, s.OC, to), to + padded_oc, 0.0f);
  }
}

// A thread's part of what begins at `memory`. size: of a part, in T
template <class T>
T* part_of(uint8_t* memory, int thread, int64_t size) {
  return reinterpret_cast<T*>(memory) + thread * size;
}

// T: what the tensors store
template <class T, class Element>
void dense_backward_from(const Conv2dBackward& call, Tensor& workspace, const DenseTiles<Element>& tiles) {
  const Conv2dSizes& s = call.sizes;
  const DenseLayout<Element> layout(s, tiles.lanes);
  const int64_t groups = conv2d_groups(s), image_size = s.H * s.W * s.C, dy_size = s.OH * s.OW * s.OC;
  const int64_t fields = s.K() * layout.padded_oc, dy_rows_size = layout.groups * layout.padded_oc;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  const T *images = call.x.data<T>(), *dout = call.dy.data<T>();
  const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
  T* din = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* dweights = reinterpret_cast<float*>(memory + layout.dweights);
  float* dbiases = reinterpret_cast<float*>(memory + layout.dbiases);
  if (din) {
    pack_turned_weights(s, layout, tiles, call.weight.data<T>(), reinterpret_cast<Element*>(memory + layout.turned),
                        weights);
  }

  parallel(groups, [&](int64_t group, int thread) {
    Element* image = part_of<Element>(memory + layout.images, thread, layout.padded_image(s));
    Element* plane = part_of<Element>(memory + layout.planes, thread, layout.plane);
    Element* own_dy = part_of<Element>(memory + layout.own_dy, thread, dy_size);
    Cell* cells = part_of<Cell>(memory + layout.cells, thread, layout.image);
    Cell* dy_cells = part_of<Cell>(memory + layout.dy_cells, thread, s.OH * dy_rows_size);
    float* results = part_of<float>(memory + layout.results, thread, most_tile_pixels * most_panel);
    float *dweight = dweights + group * fields, *dbias = dbiases + group * layout.padded_oc;
    std::fill_n(dweight, fields, 0.0f);
    std::fill_n(dbias, layout.padded_oc, 0.0f);
    for (int64_t n = group * s.N / groups; n < (group + 1) * s.N / groups; ++n) {
      const Element* dy = sample_of(dout + n * dy_size, y ? y + n * dy_size : nullptr, dy_size, own_dy);
      if (din) {
        copy_bordered(dy, s.OH, s.OW * s.OC, plane, layout.dy_row, layout.top * layout.dy_row + layout.left * s.OC,
                      layout.plane);
        write_dx(s, layout, tiles, plane, weights, results, din + n * image_size);
      }
      for (int64_t h = 0; h < s.OH; ++h) {
        write_cells(s, dy + h * s.OW * s.OC, dy_cells + h * dy_rows_size, layout.padded_oc);
      }
      if (call.dbias.defined()) {
        for (int64_t oc = 0; oc < layout.padded_oc; oc += tiles.lanes) {
          tiles.add_dbias(dy_cells + oc, s.OH * layout.groups, layout.padded_oc, dbias + oc);
        }
      }
      if (!call.dweight.defined()) continue;
      copy_bordered(images + n * image_size, s.H, s.W * s.C, image, layout.image_row,
                    s.padding * (layout.image_row + s.C), layout.padded_image(s));
      add_dweight(s, layout, tiles, tiles.to_cells(image, s.stride * s.C, layout.image, cells), dy_cells, dweight);
    }
  });

  // The groups meet in order.
  const auto sum_of = [groups](const float* values, int64_t distance) {
    float sum = 0;
    for (int64_t group = 0; group < groups; ++group) sum += values[group * distance];
    return sum;
  };
  if (call.dweight.defined()) {
    update_gradient(call.dweight, call.accumulate, [&](int64_t i, float before) {
      return before + sum_of(dweights + i / s.OC * layout.padded_oc + i % s.OC, fields);
    });
  }
  if (call.dbias.defined()) {
    update_gradient(call.dbias, call.accumulate,
                    [&](int64_t oc, float before) { return before + sum_of(dbiases + oc, layout.padded_oc); });
  }
}

}  // namespace
}  // namespace hs
