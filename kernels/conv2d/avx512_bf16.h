// Tiles of a convolution for bf16 with AVX-512 BF16. As in kernels/conv2d/direct.cpp a tile of several pixels by
// several vectors of output channels stays in registers while the sum runs along the kernel rows of the image, here two
// inputs at a time: vdpbf16ps adds the products of a pair of inputs and a pair of weights to each f32 sum. Internal to
// kernels/conv2d/avx512_bf16*.cpp.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine/cpu_features.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/pack.h"

namespace hs {
namespace {

constexpr int64_t panel_channels = 64, largest_tile = 12;

// Pixels in a tile, so that sums, one row of weights and one input fit the 32 registers.
constexpr int tile_pixels(int vectors) { return vectors == 4 ? 6 : vectors == 3 ? 8 : 12; }

struct Tile {
  const BFloat16* fields[largest_tile];  // first input of each pixel's receptive field
  const Cell* weight;                    // (KH, steps, vectors*16) pairs, packed
  const float* bias;                     // (vectors*16)
  int64_t KH, steps, row;                // steps = KW*C / 2; row: elements of an image row
};

template <int vectors>
HS_TARGET_AVX512_BF16 void multiply_tile(const Tile& t, float* to) {  // to: (pixels, vectors*16)
  constexpr int pixels = tile_pixels(vectors);
  __m512 sum[pixels][vectors];
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) sum[p][v] = _mm512_loadu_ps(t.bias + v * 16);
  }
  const Cell* weight = t.weight;
  for (int64_t kh = 0; kh < t.KH; ++kh) {
    for (int64_t k = 0; k < t.steps; ++k, weight += vectors * 16) {
      __m512i w[vectors];
      for (int v = 0; v < vectors; ++v) w[v] = _mm512_loadu_si512(weight + v * 16);
      for (int p = 0; p < pixels; ++p) {
        int pair;
        std::memcpy(&pair, t.fields[p] + kh * t.row + 2 * k, sizeof pair);
        const __m512i x = _mm512_set1_epi32(pair);
        for (int v = 0; v < vectors; ++v) sum[p][v] = _mm512_dpbf16_ps(sum[p][v], (__m512bh)x, (__m512bh)w[v]);
      }
    }
  }
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(to + (p * vectors + v) * 16, sum[p][v]);
  }
}

constexpr void (*tiles[])(const Tile&, float*) = {nullptr, multiply_tile<1>, multiply_tile<2>, multiply_tile<3>,
                                                  multiply_tile<4>};

// Panels of up to 64 output channels, zero beyond OC: (panel, K/2, channels of the panel) pairs.
inline void pack_weights(const Conv2dSizes& s, int64_t padded_oc, const BFloat16* weight, Cell* packed) {
  for (int64_t first = 0; first < padded_oc; first += panel_channels) {
    const int64_t channels = std::min(panel_channels, padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first);
    interleave_rows(&weight[first].bits, s.OC, s.K(), valid, packed, channels);
    packed += s.K() / 2 * channels;
  }
}

}  // namespace
}  // namespace hs

#endif
