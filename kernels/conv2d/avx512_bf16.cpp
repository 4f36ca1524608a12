// conv2d for bf16 with AVX-512 BF16, forward, by the tiles of avx512_bf16.h.
// Read next: kernels/conv2d/avx512_bf16_backward.cpp.
#include "engine/cpu_features.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

struct Layout {
  int64_t W, row, image;                                    // of the padded image, in elements
  int64_t padded_oc, weights, bias, results, images, size;  // offsets in bytes
  explicit Layout(const Conv2dSizes& s) {
    W = s.W + 2 * s.padding;
    row = W * s.C;
    image = round_up((s.H + 2 * s.padding) * row, 32);
    padded_oc = round_up(s.OC, 16);
    weights = 0;
    bias = weights + s.K() / 2 * padded_oc * 4;
    results = bias + padded_oc * 4;
    images = results + threads() * largest_tile * panel_channels * 4;
    size = images + (s.padding > 0 ? threads() * image * 2 : 0);
  }
};

void forward_image(const Conv2dSizes& s, const Layout& layout, const BFloat16* image, const Cell* weights,
                   const float* bias, float* results, BFloat16* y) {
  const int64_t pixels = s.OH * s.OW;
  for (int64_t first = 0; first < layout.padded_oc; first += panel_channels) {
    const int64_t channels = std::min(panel_channels, layout.padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first), tile = tile_pixels(static_cast<int>(channels / 16));
    Tile t{{}, weights + first * (s.K() / 2), bias + first, s.KH, s.KW * s.C / 2, layout.row};
    for (int64_t pixel = 0; pixel < pixels; pixel += tile) {
      const int64_t count = std::min(tile, pixels - pixel);
      for (int64_t i = 0; i < tile; ++i) {
        const int64_t o = pixel + std::min(i, count - 1);  // a short last tile repeats its last pixel
        t.fields[i] = image + (o / s.OW * s.stride * layout.W + o % s.OW * s.stride) * s.C;
      }
      tiles[channels / 16](t, results);
      for (int64_t i = 0; i < count; ++i) narrow(results + i * channels, y + (pixel + i) * s.OC + first, valid);
    }
  }
}

void forward_avx512_bf16(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Layout layout(s);
  const int64_t image_size = s.H * s.W * s.C;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias_f32 = reinterpret_cast<float*>(memory + layout.bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* out = call.y.mutable_data<BFloat16>();
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
    forward_image(s, layout, image, weights, bias_f32,
                  reinterpret_cast<float*>(memory + layout.results) + thread * largest_tile * panel_channels,
                  out + n * s.OH * s.OW * s.OC);
  });
}

bool supports_forward(const Conv2dForward& call) {
  return call.x.dtype() == DType::bf16 && call.sizes.KW * call.sizes.C % 2 == 0 && without_relu(call) &&
         cpu_features().avx512_bf16;
}

REGISTER_KERNEL(conv2d_forward, cpu, "avx512_bf16",
                {.run = forward_avx512_bf16,
                 .supported = supports_forward,
                 .workspace = [](const Conv2dForward& call) { return Layout(call.sizes).size; },
                 .rank = rank_of_bf16_pairs(10)});

}  // namespace
}  // namespace hs

#endif
