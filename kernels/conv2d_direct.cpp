// conv2d without im2col, f32: the "direct" variant.
//
// Forward: for one output row position, the inputs under one kernel row are KW*C consecutive floats of an NHWC image.
// So the sum over K runs along memory, and a tile of several pixels by several vectors of output channels stays in
// registers: every weight that is loaded serves all pixels of the tile, every input serves all channels.
// Read next: kernels/conv2d_direct_backward.cpp.
#include "kernels/conv2d_direct.h"

#include "kernels/cpu.h"

namespace hs {
namespace {

using namespace direct;

constexpr int max_vectors = simd::registers == 32 ? 4 : 2;  // of output channels in a tile

// Pixels in a tile, so that accumulators, one weight row and one input fit the registers.
constexpr int tile_pixels(int vectors) {
  if (simd::registers == 32) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
  return vectors == 2 ? 6 : 12;
}

struct TileArguments {
  const float* fields[12];  // first input of each pixel's receptive field
  float* outputs[12];       // first output channel of each pixel
  const float* weight;      // (KH, KW*C, vectors*width), packed
  const float* bias;        // (vectors*width)
  int64_t KH, run, row;     // run = KW*C
};

template <int vectors>
void forward_tile(const TileArguments& t) {
  constexpr int pixels = tile_pixels(vectors);
  Vec sum[pixels][vectors];
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) sum[p][v] = simd::load(t.bias + v * W_);
  }
  const float* weight = t.weight;
  for (int64_t kh = 0; kh < t.KH; ++kh) {
    for (int64_t k = 0; k < t.run; ++k, weight += vectors * W_) {
      Vec w[vectors];
      for (int v = 0; v < vectors; ++v) w[v] = simd::load(weight + v * W_);
      for (int p = 0; p < pixels; ++p) {
        const Vec x = simd::broadcast(t.fields[p][kh * t.row + k]);
        for (int v = 0; v < vectors; ++v) sum[p][v] = simd::fma(x, w[v], sum[p][v]);
      }
    }
  }
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) simd::store(t.outputs[p] + v * W_, sum[p][v]);
  }
}

constexpr void (*forward_tiles[])(const TileArguments&) = {nullptr, forward_tile<1>, forward_tile<2>,
                                                           forward_tile<(max_vectors >= 3 ? 3 : 2)>,
                                                           forward_tile<(max_vectors >= 4 ? 4 : 2)>};

struct ForwardLayout {
  int64_t padded_oc, weights, bias, images, spill;  // offsets in floats
  int64_t size;
  ForwardLayout(const Conv2dSizes& s, const Padded& p) {
    padded_oc = round_up(s.OC, W_);
    weights = 0;
    bias = weights + s.K() * padded_oc;
    images = bias + padded_oc;
    spill = images + threads() * p.size;
    size = spill + threads() * 12 * max_vectors * W_;
  }
};

int64_t forward_workspace(const Tensor&, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&, Tensor&) {
  return ForwardLayout(s, Padded(s)).size * static_cast<int64_t>(sizeof(float));
}

// Weights as panels of up to max_vectors vectors of output channels, zero beyond OC: (panel, K, channels of the panel).
void pack_weights(const Conv2dSizes& s, const float* weight, int64_t padded_oc, float* packed) {
  for (int64_t first = 0; first < padded_oc; first += max_vectors * W_) {
    const int64_t channels = std::min(max_vectors * W_, padded_oc - first);
    for (int64_t k = 0; k < s.K(); ++k) {
      for (int64_t c = 0; c < channels; ++c) {
        *packed++ = first + c < s.OC ? weight[k * s.OC + first + c] : 0.0f;
      }
    }
  }
}

void forward_image(const Conv2dSizes& s, const Padded& p, const ForwardLayout& layout, const float* padded,
                   const float* weights, const float* bias, float* spill, float* y) {
  const int64_t pixels = s.OH * s.OW;
  for (int64_t first = 0; first < layout.padded_oc; first += max_vectors * W_) {
    const int64_t channels = std::min(max_vectors * W_, layout.padded_oc - first);
    const int vectors = static_cast<int>(channels / W_);
    const int64_t valid = std::min(channels, s.OC - first);
    const int64_t tile = tile_pixels(vectors);
    TileArguments t{{}, {}, weights + first * s.K(), bias + first, s.KH, s.KW * s.C, p.row};
    for (int64_t pixel = 0; pixel < pixels; pixel += tile) {
      const int64_t count = std::min(tile, pixels - pixel);
      for (int64_t i = 0; i < tile; ++i) {
        const int64_t o = pixel + std::min(i, count - 1);  // a short last tile repeats its last pixel
        t.fields[i] = padded + (o / s.OW * s.stride * p.W + o % s.OW * s.stride) * s.C;
        t.outputs[i] = valid == channels ? y + o * s.OC + first : spill + i * channels;
      }
      forward_tiles[vectors](t);
      if (valid == channels) continue;
      for (int64_t i = 0; i < count; ++i) std::copy_n(spill + i * channels, valid, y + (pixel + i) * s.OC + first);
    }
  }
}

void forward_direct(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dSizes& s, Tensor& workspace,
                    Tensor& y) {
  const Padded p(s);
  const ForwardLayout layout(s, p);
  float* memory = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const float* images = x.data<float>();
  float* out = y.mutable_data<float>();
  pack_weights(s, weight.data<float>(), layout.padded_oc, memory + layout.weights);
  std::fill_n(memory + layout.bias, layout.padded_oc, 0.0f);
  if (bias.defined()) std::copy_n(bias.data<float>(), s.OC, memory + layout.bias);
  parallel(s.N, [&](int64_t n, int thread) {
    const float* image = images + n * s.H * s.W * s.C;
    if (s.padding > 0) {
      float* mine = memory + layout.images + thread * p.size;
      copy_padded(s, p, image, mine);
      image = mine;
    }
    forward_image(s, p, layout, image, memory + layout.weights, memory + layout.bias,
                  memory + layout.spill + thread * 12 * max_vectors * W_, out + n * s.OH * s.OW * s.OC);
  });
}

REGISTER_KERNEL(conv2d_forward, cpu, "direct",
                {.run = forward_direct,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes&, Tensor&,
                                 Tensor&) { return is_f32(x); },
                 .workspace = forward_workspace,
                 .rank = 10});

}  // namespace
}  // namespace hs
