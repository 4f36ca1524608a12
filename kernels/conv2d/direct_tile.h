// A convolution's tile in f32: several pixels by several vectors of output channels, whose sums stay in registers while
// the sum runs along the kernel rows of the image. Internal to kernels/conv2d/direct.cpp and dense_backward.cpp, which
// include it once for each instruction set (kernels/cpu/each_isa.h), so it has no `#pragma once`.
namespace hs::HS_ISA {
namespace {

constexpr int max_vectors = registers == 32 ? 4 : 2;  // of output channels in a tile

// Pixels in a tile, so that accumulators, one weight row and one input fit the registers.
constexpr int tile_pixels(int vectors) {
  if (registers == 32) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
  return vectors == 2 ? 6 : 12;
}

constexpr int max_pixels = tile_pixels(1);

struct TileArguments {
  const float* fields[max_pixels];  // first input of each pixel's receptive field
  float* outputs[max_pixels];       // first output channel of each pixel
  const float* weight;              // (KH, KW*C, vectors*width), packed
  const float* bias;                // (vectors*width)
  float floor;                      // of the result: 0 for a ReLU
  int64_t KH, run, row;             // run = KW*C
};

template <int vectors>
void forward_tile(const TileArguments& t) {
  constexpr int pixels = tile_pixels(vectors);
  Vec sum[pixels][vectors];
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) sum[p][v] = load(t.bias + v * lanes);
  }
  const float* weight = t.weight;
  for (int64_t kh = 0; kh < t.KH; ++kh) {
    for (int64_t k = 0; k < t.run; ++k, weight += vectors * lanes) {
      Vec w[vectors];
      for (int v = 0; v < vectors; ++v) w[v] = load(weight + v * lanes);
      for (int p = 0; p < pixels; ++p) {
        const Vec x = broadcast(t.fields[p][kh * t.row + k]);
        for (int v = 0; v < vectors; ++v) sum[p][v] = fma(x, w[v], sum[p][v]);
      }
    }
  }
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v)
      store(t.outputs[p] + v * lanes, sum[p][v] <= t.floor ? broadcast(t.floor) : sum[p][v]);
  }
}

constexpr void (*forward_tiles[])(const TileArguments&) = {nullptr, forward_tile<1>, forward_tile<2>,
                                                           forward_tile<(max_vectors >= 3 ? 3 : 2)>,
                                                           forward_tile<(max_vectors >= 4 ? 4 : 2)>};

// Weights as panels of output channels, zero beyond OC: (panel, K, channels of the panel).
template <class T>
void pack_weights(const Conv2dSizes& s, const T* weight, int64_t padded_oc, int64_t panel, float* packed) {
  for (int64_t first = 0; first < padded_oc; first += panel) {
    const int64_t channels = std::min(panel, padded_oc - first), valid = std::min(channels, s.OC - first);
    for (int64_t k = 0; k < s.K(); ++k, packed += channels) {
      for (int64_t c = 0; c < valid; ++c) packed[c] = to_computing(weight[k * s.OC + first + c]);
      std::fill(packed + valid, packed + channels, 0.0f);
    }
  }
}

}  // namespace
}  // namespace hs::HS_ISA
