// conv2d and conv2d_pool_relu with fewer multiplications, in f32 (f16 and bf16 are widened): Winograd's F(4x4, 3x3),
// for 3x3 kernels of stride 1. A 4 x 4 tile of y needs 6 x 6 pixels of x and 16 * 9 products for each pair of channels.
// Three transforms, linear and with constant coefficients, bring that down to 6 * 6 products:
//
//   6x6 pixels   --- B' x B --->  36 points  --.
//                                              |-->  36 products, summed over C: M  --- A' M A --->  4x4 pixels of y
//   3x3 weights  --- G w G' --->  36 points  --'
//
// For each point the sum over input channels is a matrix product (tiles of the image, C) x (C, OC): all that is left of
// the convolution's arithmetic, a quarter of it. The formulas are those of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016), section 4.3. They follow from polynomials that are multiplied by their values
// at 0, 1, -1, 2, -2 and infinity, so factors of 4, 5 and 8 in the transforms cancel in y, and rounding errors do not:
// see error_growth below.
//
// Backward: dx is the same pass from dy with the weights turned around. dweight follows from the adjoint transforms,
// G' (sum over tiles of (A dy A') * (B' x B)) G: again 36 products a tile and pair of channels instead of 144.
// A dy that is mostly zeros goes to "direct".
//
// An inf or NaN reaches all of its tile, and overflow comes sooner than in the sums that this stands for: the
// transforms add up to 100 times the largest number of a tile, so inf and NaN come from finite x or dy from 3.4e36 on.
// What they round is relative to the largest number of the tile, too: beside one that is 1e6 times the others, results
// are off by up to 3e5 u of their own |x||w|. error_growth is for random numbers.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/conv2d/dense_backward.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/conv2d/direct.h"
#include "kernels/conv2d/direct_tile.h"
#include "kernels/cpu/strip.h"

namespace hs::HS_ISA {
namespace {

constexpr int64_t points = 36;
constexpr int64_t line = lanes;                              // channels of a point that lie together
constexpr int64_t panel = max_vectors * lanes;               // output channels that are multiplied together
constexpr int64_t whole_strips = registers == 32 ? 24 : 12;  // tiles that strips of any number of vectors divide

// Floats from the points of a tile to those of the next. Not a power of two: rows of tiles that are read together do
// not compete for the same lines of the cache.
int64_t tile_size(int64_t channels) { return points * channels + 16; }
// Where the points of a channel begin in those of its tile.
int64_t at(int64_t channel) { return channel / line * line * points + channel % line; }
// From a point's products of channels to the next one's.
int64_t sums_size(const Conv2dSizes& s) { return s.C * s.OC + 16; }

// One row or column of the transforms.
template <size_t size>
using Line = std::array<Vec, size>;

inline Vec plus(Vec c, float factor, Vec x) { return fma(broadcast(factor), x, c); }

inline Line<6> input_points(const Line<6>& x) {  // B' x
  const Vec even = plus(x[4], -4, x[2]), odd = plus(x[3], -4, x[1]), far = x[4] - x[2], half = x[3] - x[1];
  return {plus(plus(x[4], -5, x[2]), 4, x[0]), even + odd, even - odd, plus(far, 2, half), plus(far, -2, half),
          plus(plus(x[5], -5, x[3]), 4, x[1])};
}
inline Line<4> output_pixels(const Line<6>& m) {  // A' m
  const Vec sum1 = m[1] + m[2], difference1 = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  return {m[0] + sum1 + sum2, plus(difference1, 2, difference2), plus(sum1, 4, sum2),
          plus(difference1 + m[5], 8, difference2)};
}
inline Line<6> weight_points(const Line<3>& w) {  // G w
  const Vec ends = (w[0] + w[2]) / 6, middle = w[1] / 6, far = plus(w[0] / 24, 1 / 6.0f, w[2]), half = w[1] / 12;
  return {w[0] / 4, -ends - middle, middle - ends, far + half, far - half, w[2]};
}
inline Line<6> gradient_points(const Line<4>& dy) {  // A dy
  const Vec even = dy[0] + dy[2], odd = dy[1] + dy[3], far = plus(dy[0], 4, dy[2]), half = plus(dy[1], 4, dy[3]);
  return {dy[0], even + odd, even - odd, plus(far, 2, half), plus(far, -2, half), dy[3]};
}
inline Line<3> weight_gradients(const Line<6>& m) {  // G' m
  const Vec sum1 = (m[1] + m[2]) / 6, difference1 = (m[2] - m[1]) / 6, sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  return {m[0] / 4 - sum1 + sum2 / 24, difference1 + difference2 / 12, sum2 / 6 - sum1 + m[5]};
}

template <size_t from, size_t to>
constexpr size_t size_of(Line<to> (*)(const Line<from>&)) {
  return from;
}

// Both ways: f of the columns, then of the rows. get(i, j) is an element, put(i, j, v) takes one.
template <auto f, class Get, class Put>
void transform(const Get& get, const Put& put) {
  constexpr int from = size_of(f), to = std::tuple_size_v<decltype(f({}))>;
  Line<from> half[to];
  for (int j = 0; j < from; ++j) {
    Line<from> column;
    for (int i = 0; i < from; ++i) column[i] = get(i, j);
    const Line<to> column_points = f(column);
    for (int i = 0; i < to; ++i) half[i][j] = column_points[i];
  }
  for (int i = 0; i < to; ++i) {
    const Line<to> row = f(half[i]);
    for (int j = 0; j < to; ++j) put(i, j, row[j]);
  }
}

// Where the tiles of a convolution's output lie.
struct Tiles {
  int64_t rows, columns, count;  // of an image, and of all
  explicit Tiles(const Conv2dSizes& s) : rows((s.OH + 3) / 4), columns((s.OW + 3) / 4), count(s.N * rows * columns) {}
  struct Place {
    int64_t n, h, w;  // the image and the first pixel of the output
  };
  Place at(int64_t tile) const { return {tile / (rows * columns), tile / columns % rows * 4, tile % columns * 4}; }
};

// Images whose pixels are read by the square, with zeros around them.
template <class T>
struct Images {
  const T* data;
  const T* relu_y;  // where it is closed, data counts as zero; nullptr: nowhere
  int64_t H, W, C;
};

// Where a square of pixels lies: in the image, or in a copy.
struct Square {
  const float* pixels;
  int64_t row;
};

// The square of size^2 pixels whose first is (h, w). copy: for as many pixels
template <int64_t size, class T>
Square square_at(const Images<T>& x, int64_t n, int64_t h, int64_t w, float* copy) {
  const int64_t first = ((n * x.H + h) * x.W + w) * x.C;
  const int64_t left = std::clamp<int64_t>(-w, 0, size), right = std::clamp<int64_t>(x.W - w, left, size);
  if constexpr (!stores_16_bits<T>) {
    const bool inside = h >= 0 && h + size <= x.H && left == 0 && right == size;
    if (inside && !x.relu_y) return {x.data + first, x.W * x.C};
  }
  float* row = copy;
  for (int64_t i = 0; i < size; ++i, row += size * x.C) {
    const bool inside = h + i >= 0 && h + i < x.H;
    const int64_t begin = (inside ? left : size) * x.C, end = (inside ? right : size) * x.C;
    const int64_t at = first + i * x.W * x.C;
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + size * x.C, 0.0f);
    copy_elements(x.data + at + begin, end - begin, row + begin);
    if (x.relu_y) through_relu(x.relu_y + at + begin, row + begin, end - begin, row + begin);
  }
  return {copy, size * x.C};
}

// What holds `count` tiles of images with `size` elements, nearly: the pixels of a row of tiles lie together.
template <class T>
Ahead ahead_of(const T* images, int64_t size, const Tiles& tiles, int64_t first, int64_t count) {
  const int64_t each = size / tiles.count, some = std::clamp<int64_t>(tiles.count - first, 0, count);
  return Ahead(images + first * each, 1, some * each, 0, points);
}

// The points of `count` tiles from `first`: (tiles, C / line, 36, line), so that those that a transform writes lie
// together.
template <auto f, class T>
void to_points(const Images<T>& images, const Tiles& tiles, int64_t padding, int64_t first, int64_t count, float* copy,
               float* to) {
  constexpr int64_t size = size_of(f);
  for (int64_t tile = 0; tile < count; ++tile) {
    const auto [n, h, w] = tiles.at(first + tile);
    const Square square = square_at<size>(images, n, h - padding, w - padding, copy);
    float* place = to + tile * tile_size(images.C);
    for (int64_t c = 0; c < images.C; c += lanes) {
      transform<f>([from = square.pixels + c, row = square.row, C = images.C](
                       int64_t i, int64_t j) { return load(from + i * row + j * C); },
                   [to_c = place + at(c)](int64_t i, int64_t j, Vec v) { store(to_c + (i * 6 + j) * line, v); });
    }
  }
}

// Both kinds of 3x3 weights that are multiplied as (tiles, in) x (in, out), as points: of each (panel, in, channels of
// the panel). turned: the weights of dx, from OC to C
template <class T>
void pack_points(const Conv2dSizes& s, const T* weight, bool turned, float* packed) {
  const int64_t in = turned ? s.OC : s.C, out = turned ? s.C : s.OC;
  parallel(in, [&](int64_t i, int) {
    for (int64_t o = 0; o < out; o += lanes) {
      const int64_t first = o / panel * panel, channels = std::min(panel, out - first);
      float* place = packed + first * in + i * channels + o - first;
      const auto tap = [&](int64_t kh, int64_t kw) {
        const int64_t k = kh * 3 + kw;
        float values[lanes];
        for (int64_t l = 0; l < lanes; ++l) {
          const int64_t row = turned ? (8 - k) * s.C + o + l : k * s.C + i;
          values[l] = to_computing(weight[row * s.OC + (turned ? i : o + l)]);
        }
        return load(values);
      };
      transform<weight_points>(tap, [&](int64_t a, int64_t b, Vec v) { store(place + (a * 6 + b) * in * out, v); });
    }
  });
}

// Tiles that are transformed together: their points stay in the second-level cache. The products of their channels are
// added to sums once for all of them, so backward takes as many as there are sums.
int64_t tiles_of_block(const Conv2dSizes& s, bool backward) {
  const int64_t floats = std::max<int64_t>(1 << 16, backward ? points * s.C * s.OC : 0);
  return std::max<int64_t>(1, floats / (points * (s.C + s.OC)) / whole_strips) * whole_strips;
}

struct WinogradMemory : Parts {
  const Conv2dSizes& s;
  const bool backward;
  const int64_t block = tiles_of_block(s, backward), groups = backward ? conv2d_groups(s) : 0;
  const int64_t channels = std::max(s.C, s.OC);
  float* weights = take<float>(points * s.C * s.OC);
  float* bias = take<float>(channels);
  Each<float> dweights = each<float>(s.K() * s.OC, groups);
  Each<float> dbiases = each<float>(s.OC, groups);
  Each<float> tiles = each<float>(block * (tile_size(s.C) + tile_size(s.OC)));  // of a thread: points of x, then of y
  Each<float> copy = each<float>(points * channels);                            // a square of pixels
  Each<float> sums = each<float>(backward ? points * sums_size(s) : 0);         // the products of all points
};

// One point and panel of some tiles. Whole strips: those behind the last tile are computed from what lies there.
template <int vectors>
void multiply_panel(const Conv2dSizes& s, int64_t count, const float* in, const float* weights, float* out) {
  constexpr int rows = tile_pixels(vectors);
  static_assert(whole_strips % rows == 0);
  const int64_t from_row = tile_size(s.C), to_row = tile_size(s.OC);
  for (int64_t tile = 0; tile < count; tile += rows) {
    multiply_strip<rows, vectors>(in + tile * from_row, from_row, 1, weights, vectors * lanes, line,
                                  out + tile * to_row, to_row, false, s.C / line, points * line);
  }
}

constexpr void (*multiply_panels[])(const Conv2dSizes&, int64_t, const float*, const float*, float*) = {
    nullptr, multiply_panel<1>, multiply_panel<2>, multiply_panel<(max_vectors >= 3 ? 3 : 2)>,
    multiply_panel<(max_vectors >= 4 ? 4 : 2)>};

// The points of y are (tiles, panels, 36, channels of the panel). Memory delivers y's place and the next x meanwhile.
void multiply_points(const Conv2dSizes& s, int64_t count, const float* in, const float* weights, float* out, Ahead y,
                     Ahead next_x) {
  for (int64_t point = 0; point < points; ++point) {
    y.request(), next_x.request();
    for (int64_t first = 0; first < s.OC; first += panel) {
      const int64_t channels = std::min(panel, s.OC - first);
      multiply_panels[channels / lanes](s, count, in + point * line, weights + point * s.C * s.OC + first * s.C,
                                        out + first * points + point * channels);
    }
  }
}

// What a pass writes.
template <class T>
struct Output {
  T* y;
  uint8_t* winner;  // of conv2d_pool_relu, whose y is pooled; else nullptr
  float floor;      // of y: 0 for a ReLU
};

// A tile of y in f32, from a panel's points. Rows and columns beyond the image are left out.
struct OutputTile {
  const float *from, *bias;
  Output<float> to;
  int64_t rows, columns;           // of the convolution
  int64_t row, winner_row, pixel;  // elements of y and of winners from one to the next
};

template <int vectors>
void write_panel(const OutputTile& t) {
  for (int64_t oc = 0; oc < vectors * lanes; oc += lanes) {
    const Vec bias = load(t.bias + oc), floor = broadcast(t.to.floor);
    Vec y[4][4];
    transform<output_pixels>(
        [from = t.from + oc](int64_t i, int64_t j) { return load(from + (i * 6 + j) * vectors * lanes); },
        [&](int64_t i, int64_t j, Vec v) { y[i][j] = v + bias; });
    for (int64_t i = 0; i < 2 && t.to.winner && 2 * i + 1 < t.rows; ++i) {
      for (int64_t j = 0; j < 2 && 2 * j + 1 < t.columns; ++j) {
        const Pooled pooled = pool(y[2 * i][2 * j], y[2 * i][2 * j + 1], y[2 * i + 1][2 * j], y[2 * i + 1][2 * j + 1]);
        store(t.to.y + i * t.row + j * t.pixel + oc, pooled.y);
        store_bytes(t.to.winner + i * t.winner_row + j * t.pixel + oc, pooled.winner);
      }
    }
    for (int64_t i = 0; i < 4 && !t.to.winner && i < t.rows; ++i) {
      for (int64_t j = 0; j < 4 && j < t.columns; ++j) {
        store(t.to.y + i * t.row + j * t.pixel + oc, y[i][j] <= floor ? floor : y[i][j]);
      }
    }
  }
}

constexpr void (*write_panels[])(const OutputTile&) = {nullptr, write_panel<1>, write_panel<2>,
                                                       write_panel<(max_vectors >= 3 ? 3 : 2)>,
                                                       write_panel<(max_vectors >= 4 ? 4 : 2)>};

// y of some tiles, a block after another; s: of this pass, which may be the one from dy to dx.
template <class T>
void run_pass(const Conv2dSizes& s, const WinogradMemory& m, const Images<T>& images, const Output<T>& to,
              int64_t begin, int64_t end, int thread) {
  const Tiles tiles(s);
  float *in = m.tiles[thread], *out = in + m.block * tile_size(s.C), *copy = m.copy[thread];
  const int64_t side = to.winner ? 2 : 1, OH = s.OH / side, OW = s.OW / side;  // of y
  for (int64_t first = begin; first < end; first += m.block) {
    const int64_t count = std::min(m.block, end - first);
    to_points<input_points>(images, tiles, s.padding, first, count, copy, in);
    multiply_points(s, count, in, m.weights, out, ahead_of(to.y, s.N * OH * OW * s.OC, tiles, first, count),
                    ahead_of(images.data, s.N * s.H * s.W * s.C, tiles, first + count, m.block));
    for (int64_t tile = 0; tile < count; ++tile) {
      const auto [n, h, w] = tiles.at(first + tile);
      const int64_t place = ((n * OH + h / side) * OW + w / side) * s.OC;
      const int64_t rows = std::min<int64_t>(s.OH - h, 4) / side, columns = std::min<int64_t>(s.OW - w, 4) / side;
      float* y = copy;  // 16 bits are rounded from here, whole rows of the tile
      int64_t row = 4 * s.OC;
      if constexpr (!stores_16_bits<T>) y = to.y + place, row = OW * s.OC;
      for (int64_t oc = 0; oc < s.OC; oc += panel) {
        write_panels[std::min(panel, s.OC - oc) / lanes](
            {out + tile * tile_size(s.OC) + oc * points,
             m.bias + oc,
             {y + oc, to.winner ? to.winner + place + oc : nullptr, to.floor},
             s.OH - h,
             s.OW - w,
             row,
             OW * s.OC,
             s.OC});
      }
      for (int64_t i = 0; stores_16_bits<T> && i < rows; ++i) {
        store_block(y + i * row, to.y + place + i * OW * s.OC, columns * s.OC);
      }
    }
  }
}

template <class T, class Call>
void forward_winograd_of(const Call& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const WinogradMemory m{Parts(workspace), s, false};
  pack_points(s, call.weight.template data<T>(), false, m.weights);
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    m.bias[oc] = call.bias.defined() ? to_computing(call.bias.template data<T>()[oc]) : 0;
  }
  const Images<T> x{call.x.template data<T>(), nullptr, s.H, s.W, s.C};
  const Output<T> y{call.y.template mutable_data<T>(), winners_of(call), floor_of(call)};
  Conv2dSizes covered = s;  // by windows
  if (y.winner) covered.OH -= s.OH % 2, covered.OW -= s.OW % 2;
  const int64_t tiles = Tiles(covered).count;
  parallel((tiles + m.block - 1) / m.block, [&](int64_t piece, int thread) {
    const int64_t first = piece * m.block;
    run_pass(covered, m, x, y, first, std::min(first + m.block, tiles), thread);
  });
}

template <class Call>
void forward_winograd(const Call& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { forward_winograd_of<T>(call, workspace); });
}

// Some input channels (rows) by vectors of output channels: sums (+)= the sum over tiles of in * out.
template <int rows, int vectors>
void add_products(const Conv2dSizes& s, const float* in, const float* out, int64_t count, bool add, float* sums) {
  Vec sum[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = add ? load(sums + r * s.OC + v * lanes) : Vec{};
  }
  for (int64_t tile = 0; tile < count; ++tile, in += tile_size(s.C), out += tile_size(s.OC)) {
    Vec g[vectors];
    for (int v = 0; v < vectors; ++v) g[v] = load(out + at(v * lanes));
    for (int r = 0; r < rows; ++r) {
      const Vec x = broadcast(in[r]);
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(x, g[v], sum[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(sums + r * s.OC + v * lanes, sum[r][v]);
  }
}

// For all points and channels: sums is (36, C, OC), with sums_size() floats for a point.
void add_all_products(const Conv2dSizes& s, const float* in, const float* out, int64_t count, bool add, float* sums,
                      Ahead next_x, Ahead next_dy) {
  constexpr int rows = std::min<int>(lanes, registers / 4), vectors = registers / 2 / rows;  // of a line at most
  for (int64_t point = 0; point < points; ++point) {
    next_x.request(), next_dy.request();
    for (int64_t oc = 0; oc < s.OC; oc += vectors * lanes) {
      const auto run = oc + vectors * lanes <= s.OC ? add_products<rows, vectors> : add_products<rows, 1>;
      for (int64_t c = 0; c < s.C; c += rows) {
        run(s, in + at(c) + point * line, out + at(oc) + point * line, count, add,
            sums + point * sums_size(s) + c * s.OC + oc);
      }
    }
  }
}

// dweight and dbias of a group's tiles.
template <class T>
void add_group(const Conv2dBackward& call, const WinogradMemory& m, const Images<T>& dy, int64_t group, int64_t begin,
               int64_t end, int thread) {
  const Conv2dSizes& s = call.sizes;
  const Tiles tiles(s);
  float *in = m.tiles[thread], *out = in + m.block * tile_size(s.C), *copy = m.copy[thread];
  const Images<T> x{call.x.data<T>(), nullptr, s.H, s.W, s.C};
  float* dbias = m.dbiases.zeroed(group);
  for (int64_t first = begin; first < end; first += m.block) {
    const int64_t count = std::min(m.block, end - first);
    to_points<gradient_points>(dy, tiles, 0, first, count, copy, out);
    for (int64_t oc = 0; oc < s.OC; oc += lanes) {
      const float* at_one = out + at(oc) + 7 * line;  // there a tile's polynomial is the sum of its dy
      Vec sum = load(dbias + oc);
      for (int64_t tile = 0; tile < count; ++tile) sum += load(at_one + tile * tile_size(s.OC));
      store(dbias + oc, sum);
    }
    if (!call.dweight.defined()) continue;
    to_points<input_points>(x, tiles, s.padding, first, count, copy, in);
    add_all_products(s, in, out, count, first > begin, m.sums[thread],
                     ahead_of(x.data, s.N * s.H * s.W * s.C, tiles, first + count, m.block),
                     ahead_of(dy.data, s.N * s.OH * s.OW * s.OC, tiles, first + count, m.block));
  }
  if (!call.dweight.defined()) return;
  const int64_t channels = s.C * s.OC;
  float* sums = m.dweights[group];
  for (int64_t i = 0; i < channels; i += lanes, sums += lanes) {
    transform<weight_gradients>([from = m.sums[thread] + i, point = sums_size(s)](
                                    int64_t a, int64_t b) { return load(from + (a * 6 + b) * point); },
                                [=](int64_t kh, int64_t kw, Vec v) { store(sums + (kh * 3 + kw) * channels, v); });
  }
}

template <class T>
void backward_winograd_of(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const WinogradMemory m{Parts(workspace), s, true};
  const Images<T> dy{call.dy.data<T>(), call.relu_y.defined() ? call.relu_y.data<T>() : nullptr, s.OH, s.OW, s.OC};
  Conv2dSizes to_dx = s;
  to_dx.H = s.OH, to_dx.W = s.OW, to_dx.C = s.OC, to_dx.OH = s.H, to_dx.OW = s.W, to_dx.OC = s.C;
  to_dx.padding = 2 - s.padding;
  T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
  if (dx) {
    pack_points(s, call.weight.data<T>(), true, m.weights);
    std::fill_n(m.bias, s.C, 0.0f);
  }
  parallel(m.groups, [&](int64_t group, int thread) {
    const int64_t begin = group * s.N / m.groups, end = (group + 1) * s.N / m.groups;
    const auto first_tile = [](const Tiles& tiles, int64_t image) { return image * tiles.rows * tiles.columns; };
    if (call.dweight.defined() || call.dbias.defined()) {
      const Tiles tiles(s);
      add_group(call, m, dy, group, first_tile(tiles, begin), first_tile(tiles, end), thread);
    }
    if (dx) {
      const Tiles tiles(to_dx);
      run_pass(to_dx, m, dy, {dx, nullptr, -std::numeric_limits<float>::infinity()}, first_tile(tiles, begin),
               first_tile(tiles, end), thread);
    }
  });
  add_groups(s, m.dweights, call.accumulate, call.dweight, 1, [&](int64_t k) { return k * s.OC; });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

void backward_winograd(const Conv2dBackward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { backward_winograd_of<T>(call, workspace); });
}

template <class Call>
int64_t forward_workspace(const Call& call) {
  return WinogradMemory{Parts(), call.sizes, false}.bytes();
}
int64_t backward_workspace(const Conv2dBackward& call) { return WinogradMemory{Parts(), call.sizes, true}.bytes(); }

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/winograd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

template <class Call>
bool fits(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  const bool is_wide = s.C % 16 == 0 && s.OC % 16 == 0 && (is_f32(call.x) || is_16_bit(call.x));
  return is_wide && s.KH == 3 && s.KW == 3 && s.stride == 1 && s.padding <= 2;
}

// Pairs of bf16 have half of the multiplications of f32, 4.5 C * OC a pixel; 36/16 C * OC are left here, and transforms
// of C and of OC channels, which cost about as much as 45 multiplications each.
template <class Call>
bool pays(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  const bool has_pairs = call.x.dtype() == DType::bf16 && has_fast_bf16_pairs();
  return !has_pairs || s.C * s.OC >= 20 * (s.C + s.OC);
}

// With independent random numbers a transformed row of x has a variance of up to 42 (the squares of a row of B' add up
// to that), one of w of up to 1, and output 3 adds up products whose variances sum to 94, where the plain sum of three
// has 3: sqrt(94 / 3) = 5.6 in a direction, 31 in both. That is how much larger the terms are whose roundings reach y.
// dx is the same, and dweight has sqrt(97 / 4)^2 = 24.
constexpr double growth = 32;

void backward(const Conv2dBackward& call, Tensor& workspace) {
  if (!has_few_zeros(call)) return lists_backward(call, workspace);
  HS_FOR_THIS_CPU(backward_winograd)(call, workspace);
}

int64_t workspace_of(const Conv2dBackward& call) {
  return std::max(HS_FOR_THIS_CPU(backward_workspace)(call), lists_workspace(call));
}

template <class Call>
constexpr typename Kernel<Call>::Options winograd = {.run = HS_DISPATCHED(forward_winograd<Call>),
                                                     .supported = fits<Call>,
                                                     .workspace = HS_DISPATCHED(forward_workspace<Call>),
                                                     .rank = 16,
                                                     .pays = pays<Call>,
                                                     .error_growth = growth};
REGISTER_KERNEL(conv2d_forward, cpu, "winograd", {winograd<Conv2dForward>});
REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "winograd", {winograd<Conv2dPoolReluForward>});
REGISTER_KERNEL(conv2d_backward, cpu, "winograd",
                {.run = backward,
                 .supported = fits<Conv2dBackward>,
                 .workspace = workspace_of,
                 .rank = 15,
                 .error_growth = growth});

}  // namespace
}  // namespace hs

#endif
