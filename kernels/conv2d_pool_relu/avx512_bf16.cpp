// Forward for bf16 with AVX-512 BF16: the sums of two rows of the image by the tiles of kernels/conv2d/avx512_bf16.h,
// f32 in the first-level cache; then pool_sums() makes one row of windows of them. Backward is that of "direct", which
// reads the same winners.
#include <algorithm>

#include "engine/cpu_features.h"
#include "kernels/conv2d_pool_relu/pool.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

struct Layout {
  int64_t W, row, image;                // of the padded image, in elements
  int64_t PW, padded_oc, sums, pooled;  // of each thread: two rows of sums, one pooled, in floats
  int64_t weights, bias, all_sums, all_pooled, places, images, size;  // offsets in bytes
  explicit Layout(const Conv2dSizes& s) {
    W = s.W + 2 * s.padding;
    row = W * s.C;
    image = round_up((s.H + 2 * s.padding) * row, 32);
    PW = s.OW / 2;
    padded_oc = round_up(s.OC, 16);
    sums = (4 * PW + largest_tile) * panel_channels;  // the last tile may be longer than the rows
    pooled = PW * panel_channels;
    weights = 0;
    bias = weights + s.K() / 2 * padded_oc * 4;
    all_sums = bias + padded_oc * 4;
    all_pooled = all_sums + threads() * sums * 4;
    places = all_pooled + threads() * pooled * 4;
    images = places + threads() * pooled;
    size = images + (s.padding > 0 ? threads() * image * 2 : 0);
  }
};

struct Scratch {  // of a thread
  float *sums, *pooled;
  uint8_t* places;
};

void forward_image(const Conv2dSizes& s, const Layout& layout, const BFloat16* image, const Cell* weights,
                   const float* bias, const Scratch& scratch, BFloat16* y, uint8_t* winner) {
  const int64_t PH = s.OH / 2, PW = layout.PW, pixels = 4 * PW;
  for (int64_t first = 0; first < layout.padded_oc; first += panel_channels) {
    const int64_t channels = std::min(panel_channels, layout.padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first), tile = tile_pixels(static_cast<int>(channels / 16));
    Tile t{{}, weights + first * (s.K() / 2), bias + first, s.KH, s.KW * s.C / 2, layout.row};
    for (int64_t ph = 0; ph < PH; ++ph) {
      for (int64_t pixel = 0; pixel < pixels; pixel += tile) {
        for (int64_t i = 0; i < tile; ++i) {
          const int64_t o = std::min(pixel + i, pixels - 1);  // a short last tile repeats its last pixel
          const int64_t below = o >= 2 * PW ? 1 : 0, h = 2 * ph + below, w = o - below * 2 * PW;
          t.fields[i] = image + (h * layout.W + w) * s.stride * s.C;
        }
        tiles[channels / 16](t, scratch.sums + pixel * channels);
      }
      pool_sums(scratch.sums, {PW, channels, 2 * PW * channels}, channels, scratch.pooled, scratch.places);
      for (int64_t pw = 0; pw < PW; ++pw) {
        const int64_t at = (ph * PW + pw) * s.OC + first;
        narrow(scratch.pooled + pw * channels, y + at, valid);
        std::copy_n(scratch.places + pw * channels, valid, winner + at);
      }
    }
  }
}

void forward_avx512_bf16(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Layout layout(s);
  const int64_t image_size = s.H * s.W * s.C, pooled_size = s.OH / 2 * layout.PW * s.OC;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias_f32 = reinterpret_cast<float*>(memory + layout.bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* out = call.y.mutable_data<BFloat16>();
  uint8_t* winners = call.winner.mutable_data<uint8_t>();
  pack_weights(s, layout.padded_oc, call.weight.data<BFloat16>(), weights);
  std::fill_n(bias_f32, layout.padded_oc, 0.0f);
  if (call.bias.defined()) widen(call.bias.data<BFloat16>(), bias_f32, s.OC);
  parallel(s.N, [&](int64_t n, int thread) {
    const BFloat16* image = images + n * image_size;
    if (s.padding > 0) {
      BFloat16* padded = reinterpret_cast<BFloat16*>(memory + layout.images) + thread * layout.image;
      copy_padded(s, layout.row, image, padded, layout.image);
      image = padded;
    }
    const Scratch scratch = {reinterpret_cast<float*>(memory + layout.all_sums) + thread * layout.sums,
                             reinterpret_cast<float*>(memory + layout.all_pooled) + thread * layout.pooled,
                             memory + layout.places + thread * layout.pooled};
    forward_image(s, layout, image, weights, bias_f32, scratch, out + n * pooled_size, winners + n * pooled_size);
  });
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "avx512_bf16",
                {.run = forward_avx512_bf16,
                 .supported =
                     [](const Conv2dPoolReluForward& call) {
                       return call.x.dtype() == DType::bf16 && call.sizes.KW * call.sizes.C % 2 == 0 &&
                              cpu_features().avx512_bf16;
                     },
                 .workspace = [](const Conv2dPoolReluForward& call) { return Layout(call.sizes).size; },
                 .rank = rank_of_bf16_pairs(10)});

}  // namespace
}  // namespace hs

#endif
