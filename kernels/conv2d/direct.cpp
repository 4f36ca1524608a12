// Forward of conv2d and conv2d_pool_relu without im2col, in f32 (f16 and bf16 are widened): the "direct" variants.
//
// For one output row position, the inputs under one kernel row are KW*C consecutive floats of an NHWC image. So the sum
// over K runs along memory, and a tile of several pixels by several vectors of output channels stays in registers:
// every weight that is loaded serves all pixels of the tile, every input serves all channels.
//
// conv2d_pool_relu takes whole windows for pixels, so pooling happens in registers:
//
//              oc 0..15   oc 16..31      a window is four pixels     then, for each vector of channels:
//    pixel 0  [ sum     ][ sum      ]        0 1                       y      = max of its four sums, or 0
//    ...      [         ][          ]        2 3                       winner = which of them, or `closed`
//    pixel 11 [         ][          ]
//
// With AVX-512, three windows by two vectors of output channels: 24 sums, two weights and one input in 32 registers.
// The weights of two vectors (288 x 32 floats for a 3x3x32 field) stay in the first-level cache.
// Read next: kernels/conv2d/direct_backward.cpp.
#include <algorithm>
#include <limits>

#include "kernels/conv2d/groups.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/conv2d/direct.h"
#include "kernels/conv2d/direct_tile.h"

namespace hs::HS_ISA {
namespace {

constexpr int64_t max_windows = registers == 32 ? 3 : 1;

// Windows instead of pixels: the fields and outputs are those of their first pixels.
struct WindowTile : TileArguments {
  uint8_t* winners[max_windows];
  int64_t right, below;  // floats to the next pixel of the window
};

template <int vectors, int windows>
void window_tile(const WindowTile& t) {
  Vec sum[windows][4][vectors];
  for (auto& window : sum) {
    for (auto& pixel : window) {
      for (int v = 0; v < vectors; ++v) pixel[v] = load(t.bias + v * lanes);
    }
  }
  const float* weight = t.weight;
  const int64_t offset[4] = {0, t.right, t.below, t.below + t.right};
  for (int64_t kh = 0; kh < t.KH; ++kh) {
    const float* x[windows];
    for (int i = 0; i < windows; ++i) x[i] = t.fields[i] + kh * t.row;
    for (int64_t k = 0; k < t.run; ++k, weight += vectors * lanes) {
      Vec w[vectors];
      for (int v = 0; v < vectors; ++v) w[v] = load(weight + v * lanes);
      for (int i = 0; i < windows; ++i) {
        for (int p = 0; p < 4; ++p) {
          const Vec value = broadcast(x[i][offset[p] + k]);
          for (int v = 0; v < vectors; ++v) sum[i][p][v] = fma(value, w[v], sum[i][p][v]);
        }
      }
    }
  }
  for (int i = 0; i < windows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      const Pooled pooled = pool(sum[i][0][v], sum[i][1][v], sum[i][2][v], sum[i][3][v]);
      store(t.outputs[i] + v * lanes, pooled.y);
      store_bytes(t.winners[i] + v * lanes, pooled.winner);
    }
  }
}

constexpr void (*one_window[])(const WindowTile&) = {nullptr, window_tile<1, 1>, window_tile<2, 1>};
constexpr void (*all_windows[])(const WindowTile&) = {nullptr, window_tile<1, max_windows>,
                                                      window_tile<2, max_windows>};

// The ops' tiles: how many vectors of output channels, and of `left` pixels or windows how many at once.
struct Conv2dTiles {
  using Tile = TileArguments;
  static constexpr int64_t side = 1, panel = max_vectors * lanes;
  static int64_t size(int vectors, int64_t) { return tile_pixels(vectors); }
  static void run(int vectors, int64_t, const Tile& t) { forward_tiles[vectors](t); }
};
struct PooledTiles {
  using Tile = WindowTile;
  static constexpr int64_t side = 2, panel = 2 * lanes;
  static int64_t size(int, int64_t left) { return left < max_windows ? 1 : max_windows; }
  static void run(int vectors, int64_t size, const Tile& t) { (size == 1 ? one_window : all_windows)[vectors](t); }
};

template <class Call>
using TilesOf = std::conditional_t<std::is_same_v<Call, Conv2dForward>, Conv2dTiles, PooledTiles>;

template <class Tiles>
struct ForwardMemory : Parts {
  const Conv2dSizes& s;
  const Padded p;
  const bool is_widened;
  const int64_t pixels = (s.OH / Tiles::side) * (s.OW / Tiles::side), padded_oc = round_up(s.OC, lanes);
  float* weights = take<float>(s.K() * padded_oc);
  float* bias = take<float>(padded_oc);
  Each<float> images = each<float>(p.size);
  Each<float> spill = each<float>(max_pixels * Tiles::panel);  // results of a tile, if OC ends in its channels
  Each<uint8_t> places = each<uint8_t>(spill.size);            // the same of winners
  Each<float> results = each<float>(is_widened ? pixels * s.OC : 0);
};

// y and winner: (pixels, OC).
template <class Tiles>
void forward_image(const ForwardMemory<Tiles>& m, int thread, const float* image, float floor, float* y,
                   uint8_t* winner) {
  const Conv2dSizes& s = m.s;
  const Padded& p = m.p;
  float* const spill = m.spill[thread];
  uint8_t* const places = m.places[thread];
  const int64_t columns = s.OW / Tiles::side;
  for (int64_t first = 0; first < m.padded_oc; first += Tiles::panel) {
    const int64_t channels = std::min(Tiles::panel, m.padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first);
    const int vectors = static_cast<int>(channels / lanes);
    typename Tiles::Tile t{};
    t.weight = m.weights + first * s.K(), t.bias = m.bias + first, t.floor = floor;
    t.KH = s.KH, t.run = s.KW * s.C, t.row = p.row;
    if constexpr (Tiles::side == 2) t.right = s.stride * s.C, t.below = s.stride * p.row;
    for (int64_t pixel = 0, count = 0, row = 0, column = 0; pixel < m.pixels; pixel += count) {
      const int64_t tile = Tiles::size(vectors, m.pixels - pixel);
      count = std::min(tile, m.pixels - pixel);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = (pixel + i) * s.OC + first;
        t.fields[i] = image + (row * p.W + column) * Tiles::side * s.stride * s.C;
        t.outputs[i] = valid == channels ? y + at : spill + i * channels;
        if constexpr (Tiles::side == 2) t.winners[i] = valid == channels ? winner + at : places + i * channels;
        if (++column == columns) column = 0, ++row;
      }
      std::fill(t.fields + count, t.fields + tile, t.fields[count - 1]);  // a short last tile repeats its last pixel
      std::fill(t.outputs + count, t.outputs + tile, t.outputs[count - 1]);
      Tiles::run(vectors, tile, t);
      for (int64_t i = 0; valid < channels && i < count; ++i) {
        const int64_t at = (pixel + i) * s.OC + first;
        std::copy_n(spill + i * channels, valid, y + at);
        if (Tiles::side == 2) std::copy_n(places + i * channels, valid, winner + at);
      }
    }
  }
}

template <class T, class Call>
void forward_typed(const Call& call, Tensor& workspace) {
  using Tiles = TilesOf<Call>;
  const Conv2dSizes& s = call.sizes;
  const ForwardMemory<Tiles> m{Parts(workspace), s, Padded{s}, stores_16_bits<T>};
  const int64_t result_size = m.pixels * s.OC;
  const T* images = call.x.template data<T>();
  T* out = call.y.template mutable_data<T>();
  uint8_t* winners = winners_of(call);
  pack_weights(s, call.weight.template data<T>(), m.padded_oc, Tiles::panel, m.weights);
  std::fill_n(m.bias, m.padded_oc, 0.0f);
  if (call.bias.defined()) copy_elements(call.bias.template data<T>(), s.OC, m.bias);
  parallel(s.N, [&](int64_t n, int thread) {
    const T* image = images + n * s.H * s.W * s.C;
    float* mine = m.images[thread];
    if (stores_16_bits<T> || s.padding > 0) copy_padded(s, image, mine, m.p.size);
    const auto run = [&](const float* padded, float* y) {
      forward_image(m, thread, padded, floor_of(call), y, winners ? winners + n * result_size : nullptr);
    };
    if constexpr (stores_16_bits<T>) {
      run(mine, m.results[thread]);
      narrow(m.results[thread], out + n * result_size, result_size);
    } else {
      run(s.padding > 0 ? mine : image, out + n * result_size);
    }
  });
}

template <class Call>
void forward_direct(const Call& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { forward_typed<T>(call, workspace); });
}

template <class Call>
int64_t forward_workspace(const Call& call) {
  return ForwardMemory<TilesOf<Call>>{Parts(), call.sizes, Padded{call.sizes}, is_16_bit(call.x)}.bytes();
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/direct.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

template <class Call>
constexpr typename Kernel<Call>::Options direct = {.run = HS_DISPATCHED(forward_direct<Call>),
                                                   .supported = takes_f32_or_16_bits,
                                                   .workspace = HS_DISPATCHED(forward_workspace<Call>),
                                                   .rank = 10};
REGISTER_KERNEL(conv2d_forward, cpu, "direct", {direct<Conv2dForward>});
REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "direct", {direct<Conv2dPoolReluForward>});

}  // namespace
}  // namespace hs

#endif
