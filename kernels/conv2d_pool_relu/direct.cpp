// Forward in f32 (f16 and bf16 are widened): the "direct" variant. The sum over K runs along memory, as in
// kernels/conv2d/direct.cpp, but the pixels of a tile are whole windows, so pooling happens in registers:
//
//              oc 0..15   oc 16..31      a window is four pixels     then, for each vector of channels:
//    pixel 0  [ sum     ][ sum      ]        0 1                       y      = max of its four sums, or 0
//    ...      [         ][          ]        2 3                       winner = which of them, or `closed`
//    pixel 11 [         ][          ]
//
// With AVX-512, three windows by two vectors of output channels: 24 sums, two weights and one input in 32 registers.
// The weights of two vectors (288 x 32 floats for a 3x3x32 field) stay in the first-level cache.
#include <algorithm>

#include "kernels/conv2d_pool_relu/pool.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#ifdef HS_ISA
#include "kernels/conv2d/direct.h"

namespace hs::HS_ISA {
namespace {

constexpr int64_t panel_vectors = 2;  // of output channels in a tile
constexpr int64_t most_windows = registers == 32 ? 3 : 1;
constexpr int64_t panel = panel_vectors * lanes;

// The pooled value of four, and its winner.
struct Pooled {
  Vec y;
  Ints winner;
};
inline Pooled pool(Vec v0, Vec v1, Vec v2, Vec v3) {
  Vec best = v0;
  Ints winner = {};
  const auto compare = [&](Vec v, int32_t place) {
    const Ints better = ~(v <= best) & (best == best);  // true for the first NaN
    best = better ? v : best;
    winner = better ? Ints{} + place : winner;
  };
  compare(v1, 1);
  compare(v2, 2);
  compare(v3, 3);
  const Ints is_closed = best <= Vec{};  // false for NaN
  winner = is_closed ? Ints{} + int32_t{closed} : winner;
  return {is_closed ? Vec{} : best, winner};
}

struct Tile {
  const float* fields[most_windows];  // first input of each window's first pixel
  float* y[most_windows];             // where a window's channels go
  uint8_t* winner[most_windows];
  const float* weight;   // (KH, KW*C, panel), packed
  const float* bias;     // (panel)
  int64_t KH, run, row;  // run = KW*C floats, row: floats between the rows of the image
  int64_t right, below;  // floats to the next pixel of the window
};

template <int vectors, int windows>
void multiply_tile(const Tile& t) {
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
      store(t.y[i] + v * lanes, pooled.y);
      store_bytes(t.winner[i] + v * lanes, pooled.winner);
    }
  }
}

using TileFunction = void (*)(const Tile&);
constexpr TileFunction one_window[] = {nullptr, multiply_tile<1, 1>, multiply_tile<2, 1>};
constexpr TileFunction all_windows[] = {nullptr, multiply_tile<1, most_windows>, multiply_tile<2, most_windows>};

struct ForwardLayout {
  int64_t padded_oc, weights, bias, images, results, winners;  // offsets in floats
  int64_t size;
  ForwardLayout(const Conv2dSizes& s, const Padded& p) {
    padded_oc = round_up(s.OC, lanes);
    const int64_t windows = (s.OH / 2) * (s.OW / 2);
    weights = 0;
    bias = weights + s.K() * padded_oc;
    images = bias + padded_oc;
    results = images + threads() * p.size;                // (threads, windows, padded_oc)
    winners = results + threads() * windows * padded_oc;  // the same in bytes
    size = winners + threads() * round_up(windows * padded_oc, 64) / int64_t{sizeof(float)};
  }
};

int64_t forward_workspace(const Conv2dPoolReluForward& call) {
  return ForwardLayout(call.sizes, Padded(call.sizes)).size * int64_t{sizeof(float)};
}

// Weights as panels of output channels, zero beyond OC: (panel, K, channels of the panel).
template <class T>
void pack_weights(const Conv2dSizes& s, const T* weight, int64_t padded_oc, float* packed) {
  for (int64_t first = 0; first < padded_oc; first += panel) {
    const int64_t channels = std::min(panel, padded_oc - first);
    for (int64_t k = 0; k < s.K(); ++k, packed += channels) {
      const int64_t valid = std::min(channels, s.OC - first);
      for (int64_t c = 0; c < valid; ++c) packed[c] = to_computing(weight[k * s.OC + first + c]);
      std::fill(packed + valid, packed + channels, 0.0f);
    }
  }
}

// y and winner: (windows, padded_oc).
void forward_image(const Conv2dSizes& s, const Padded& p, int64_t padded_oc, const float* image, const float* weights,
                   const float* bias, float* y, uint8_t* winner) {
  const int64_t PW = s.OW / 2, windows = s.OH / 2 * PW;
  for (int64_t first = 0; first < padded_oc; first += panel) {
    const int64_t vectors = std::min(panel, padded_oc - first) / lanes;
    Tile t{};
    t.weight = weights + first * s.K();
    t.bias = bias + first;
    t.KH = s.KH, t.run = s.KW * s.C, t.row = p.row;
    t.right = s.stride * s.C, t.below = s.stride * p.row;
    for (int64_t window = 0; window < windows;) {
      const int64_t count = windows - window < most_windows ? 1 : most_windows;
      for (int64_t i = 0; i < count; ++i, ++window) {
        t.fields[i] = image + (window / PW * 2 * p.W + window % PW * 2) * s.stride * s.C;
        t.y[i] = y + window * padded_oc + first;
        t.winner[i] = winner + window * padded_oc + first;
      }
      (count == 1 ? one_window : all_windows)[vectors](t);
    }
  }
}

template <class T>
void forward_typed(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Padded p(s);
  const ForwardLayout layout(s, p);
  const int64_t windows = (s.OH / 2) * (s.OW / 2), scratch = windows * layout.padded_oc;
  const bool is_whole = layout.padded_oc == s.OC;
  float* memory = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const T* images = call.x.data<T>();
  T* out = call.y.mutable_data<T>();
  uint8_t* winners = call.winner.mutable_data<uint8_t>();
  pack_weights(s, call.weight.data<T>(), layout.padded_oc, memory + layout.weights);
  float* bias = memory + layout.bias;
  std::fill_n(bias, layout.padded_oc, 0.0f);
  for (int64_t oc = 0; call.bias.defined() && oc < s.OC; ++oc) bias[oc] = to_computing(call.bias.data<T>()[oc]);
  parallel(s.N, [&](int64_t n, int thread) {
    const T* image = images + n * s.H * s.W * s.C;
    float* mine = memory + layout.images + thread * p.size;
    float* results = memory + layout.results + thread * scratch;
    uint8_t* places = reinterpret_cast<uint8_t*>(memory + layout.winners) + thread * round_up(scratch, 64);
    if (stores_16_bits<T> || s.padding > 0) copy_padded(s, p, image, mine);
    const auto run = [&](const float* padded, float* y, uint8_t* winner) {
      forward_image(s, p, layout.padded_oc, padded, memory + layout.weights, bias, y, winner);
    };
    uint8_t* winner = is_whole ? winners + n * scratch : places;
    if constexpr (stores_16_bits<T>) {
      run(mine, results, winner);
    } else {
      run(s.padding > 0 ? mine : image, is_whole ? out + n * scratch : results, winner);
    }
    if (stores_16_bits<T> || !is_whole) {
      for (int64_t i = 0; i < (is_whole ? 1 : windows); ++i) {
        const int64_t count = is_whole ? scratch : s.OC;
        store_block(results + i * layout.padded_oc, out + (n * windows + i) * s.OC, count);
        if (!is_whole) std::copy_n(places + i * layout.padded_oc, count, winners + (n * windows + i) * s.OC);
      }
    }
  });
}

void forward_direct(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const auto run = call.x.dtype() == DType::f16    ? forward_typed<Half>
                   : call.x.dtype() == DType::bf16 ? forward_typed<BFloat16>
                                                   : forward_typed<float>;
  run(call, workspace);
}

// kernels/conv2d_pool_relu/pool.h
void pool_sums(const float* sums, const WindowRow& row, int64_t channels, float* y, uint8_t* winner) {
  for (int64_t window = 0; window < row.windows; ++window) {
    const float* at = sums + 2 * window * row.right;
    for (int64_t c = 0; c < channels; c += lanes, y += lanes, winner += lanes) {
      const Pooled pooled =
          pool(load(at + c), load(at + row.right + c), load(at + row.below + c), load(at + row.below + row.right + c));
      store(y, pooled.y);
      store_bytes(winner, pooled.winner);
    }
  }
}

// kernels/conv2d_pool_relu/pool.h
void unpool(const BFloat16* dy, const uint8_t* winner, int64_t OH, int64_t OW, int64_t OC, const Strides& to,
            BFloat16* dense) {
  using Places [[gnu::aligned(1), gnu::may_alias]] = uint8_t __attribute__((vector_size(HS_VECTOR_BYTES / 2)));
  using Values [[gnu::aligned(2), gnu::may_alias]] = uint16_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  constexpr int64_t together = HS_VECTOR_BYTES / 2;
  for (int64_t ph = 0; ph < OH / 2; ++ph) {
    for (int64_t pw = 0; pw < OW / 2; ++pw, dy += OC, winner += OC) {
      BFloat16* first = dense + 2 * ph * to.row + 2 * pw * to.pixel;
      BFloat16* const pixels[] = {first, first + to.pixel, first + to.row, first + to.row + to.pixel};
      int64_t oc = 0;
      for (; oc + together <= OC; oc += together) {
        const auto values = *reinterpret_cast<const Values*>(dy + oc);
        const auto places = __builtin_convertvector(*reinterpret_cast<const Places*>(winner + oc), Values);
        for (uint16_t place = 0; place < 4; ++place) {
          *reinterpret_cast<Values*>(pixels[place] + oc) = places == place ? values : Values{};
        }
      }
      for (; oc < OC; ++oc) {
        for (int place = 0; place < 4; ++place) pixels[place][oc] = winner[oc] == place ? dy[oc] : BFloat16{0};
      }
    }
  }
}

// kernels/conv2d_pool_relu/pool.h
void unpool_pairs(const BFloat16* dy, const uint8_t* winner, int64_t windows, int64_t OC, int64_t channels, Cell* pairs,
                  int64_t lower, float* dbias) {
  using Values [[gnu::aligned(2), gnu::may_alias]] = uint16_t __attribute__((vector_size(HS_VECTOR_BYTES / 2)));
  using Cells [[gnu::aligned(4), gnu::may_alias]] = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  int64_t oc = 0;
  for (; oc + lanes <= channels; oc += lanes) {
    Vec sum = {};
    for (int64_t window = 0; window < windows; ++window) {
      const auto first = __builtin_convertvector(*reinterpret_cast<const Values*>(dy + window * OC + oc), Cells);
      const Ints place = load_bytes(winner + window * OC + oc);
      const Cells second = first << 16;  // as a float: the value
      Cell* to = pairs + window * 32 + oc;
      *reinterpret_cast<Cells*>(to) = (place == 0 ? first : Cells{}) | (place == 1 ? second : Cells{});
      *reinterpret_cast<Cells*>(to + lower) = (place == 2 ? first : Cells{}) | (place == 3 ? second : Cells{});
      sum += place == int32_t{closed} ? Vec{} : reinterpret_cast<Vec>(second);
    }
    store(dbias + oc, load(dbias + oc) + sum);
  }
  for (; oc < channels; ++oc) {
    float sum = 0;
    for (int64_t window = 0; window < windows; ++window) {
      const Cell value = dy[window * OC + oc].bits;
      const uint8_t place = winner[window * OC + oc];
      Cell* to = pairs + window * 32 + oc;
      to[0] = place < 2 ? value << (place * 16) : 0;
      to[lower] = place == 2 || place == 3 ? value << ((place - 2) * 16) : 0;
      if (place != closed) sum += to_float(dy[window * OC + oc]);
    }
    dbias[oc] += sum;
  }
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d_pool_relu/direct.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

void pool_sums(const float* sums, const WindowRow& row, int64_t channels, float* y, uint8_t* winner) {
  HS_FOR_THIS_CPU(pool_sums)(sums, row, channels, y, winner);
}

void unpool(const BFloat16* dy, const uint8_t* winner, int64_t OH, int64_t OW, int64_t OC, const Strides& to,
            BFloat16* dense) {
  HS_FOR_THIS_CPU(unpool)(dy, winner, OH, OW, OC, to, dense);
}

void unpool_pairs(const BFloat16* dy, const uint8_t* winner, int64_t windows, int64_t OC, int64_t channels, Cell* pairs,
                  int64_t lower, float* dbias) {
  HS_FOR_THIS_CPU(unpool_pairs)(dy, winner, windows, OC, channels, pairs, lower, dbias);
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "direct",
                {.run =
                     +[](const Conv2dPoolReluForward& call, Tensor& workspace) {
                       HS_FOR_THIS_CPU(forward_direct)
                       (call, workspace);
                     },
                 .supported = [](const Conv2dPoolReluForward& call) { return is_f32(call.x) || is_16_bit(call.x); },
                 .workspace =
                     [](const Conv2dPoolReluForward& call) { return HS_FOR_THIS_CPU(forward_workspace)(call); },
                 .rank = 10});

}  // namespace hs

#endif
