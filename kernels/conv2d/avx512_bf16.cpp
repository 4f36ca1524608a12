// Forward of conv2d and conv2d_pool_relu for bf16 with AVX-512 BF16, by the tiles of avx512_bf16.h. conv2d_pool_relu
// computes the sums of two rows of the image, f32 in the first-level cache; then pool_sums() makes one row of windows
// of them. Its backward is that of "direct", which reads the same winners. Read next:
// kernels/conv2d/avx512_bf16_backward.cpp.
#include "engine/cpu_features.h"
#include "kernels/conv2d/dense_backward.h"
#include "kernels/conv2d_pool_relu/pool.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

template <class Call>
constexpr bool pools = std::is_same_v<Call, Conv2dPoolReluForward>;

template <bool pooled>
struct Layout {
  int64_t W, row, image;                    // of the padded image, in elements
  int64_t PW, padded_oc, sums, pooled_row;  // of each thread: sums, and one pooled row, in floats
  int64_t weights, bias, all_sums, all_rows, places, images, size;  // offsets in bytes
  explicit Layout(const Conv2dSizes& s) {
    W = s.W + 2 * s.padding;
    row = W * s.C;
    image = round_up((s.H + 2 * s.padding) * row, 32);
    PW = s.OW / 2;
    padded_oc = round_up(s.OC, 16);
    sums = ((pooled ? 4 * PW : 0) + largest_tile) * panel_channels;  // the last tile may be longer than the rows
    pooled_row = pooled ? PW * panel_channels : 0;
    weights = 0;
    bias = weights + s.K() / 2 * padded_oc * 4;
    all_sums = bias + padded_oc * 4;
    all_rows = all_sums + threads() * sums * 4;
    places = all_rows + threads() * pooled_row * 4;
    images = places + threads() * pooled_row;
    size = images + (s.padding > 0 ? threads() * image * 2 : 0);
  }
};

struct Scratch {  // of a thread
  float *sums, *pooled;
  uint8_t* places;
};

template <bool pooled>
void forward_image(const Conv2dSizes& s, const Layout<pooled>& layout, const BFloat16* image, const Cell* weights,
                   const float* bias, const Scratch& scratch, BFloat16* y, uint8_t* winner) {
  const int64_t PW = layout.PW, columns = pooled ? 2 * PW : s.OW;
  const int64_t strips = pooled ? s.OH / 2 : 1, pixels = pooled ? 4 * PW : s.OH * s.OW;  // a strip is pooled at once
  for (int64_t first = 0; first < layout.padded_oc; first += panel_channels) {
    const int64_t channels = std::min(panel_channels, layout.padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first), tile = tile_pixels(static_cast<int>(channels / 16));
    Tile t{{}, weights + first * (s.K() / 2), bias + first, s.KH, s.KW * s.C / 2, layout.row};
    const int64_t run = channels == s.OC ? tile : 1;  // pixels whose outputs follow one another in y
    for (int64_t strip = 0; strip < strips; ++strip) {
      const BFloat16* row = image + strip * 2 * layout.W * s.stride * s.C;
      for (int64_t pixel = 0, column = 0; pixel < pixels; pixel += tile) {
        const int64_t count = std::min(tile, pixels - pixel);
        for (int64_t i = 0; i < count; ++i) {
          t.fields[i] = row + column * s.stride * s.C;
          if (++column == columns) column = 0, row += layout.W * s.stride * s.C;
        }
        std::fill(t.fields + count, t.fields + tile, t.fields[count - 1]);  // a short last tile repeats its last pixel
        tiles[channels / 16](t, scratch.sums + (pooled ? pixel * channels : 0));
        for (int64_t i = 0; !pooled && i < count; i += run) {
          narrow(scratch.sums + i * channels, y + (pixel + i) * s.OC + first, std::min(run, count - i) * valid);
        }
      }
      if (!pooled) continue;
      pool_sums(scratch.sums, {PW, channels, 2 * PW * channels}, channels, scratch.pooled, scratch.places);
      for (int64_t pw = 0; pw < PW; ++pw) {
        const int64_t at = (strip * PW + pw) * s.OC + first;
        narrow(scratch.pooled + pw * channels, y + at, valid);
        std::copy_n(scratch.places + pw * channels, valid, winner + at);
      }
    }
  }
}

template <class Call>
void forward_avx512_bf16(const Call& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Layout<pools<Call>> layout(s);
  const int64_t image_size = s.H * s.W * s.C, result_size = call.y.size() / std::max<int64_t>(s.N, 1);
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias_f32 = reinterpret_cast<float*>(memory + layout.bias);
  const BFloat16* images = call.x.template data<BFloat16>();
  BFloat16* out = call.y.template mutable_data<BFloat16>();
  uint8_t* winners = nullptr;
  if constexpr (pools<Call>) winners = call.winner.template mutable_data<uint8_t>();
  pack_weights(s, layout.padded_oc, call.weight.template data<BFloat16>(), weights);
  std::fill_n(bias_f32, layout.padded_oc, 0.0f);
  if (call.bias.defined()) widen(call.bias.template data<BFloat16>(), bias_f32, s.OC);
  parallel(s.N, [&](int64_t n, int thread) {
    const BFloat16* image = images + n * image_size;
    if (s.padding > 0) {
      BFloat16* padded = reinterpret_cast<BFloat16*>(memory + layout.images) + thread * layout.image;
      copy_bordered(image, s.H, s.W * s.C, padded, layout.row, s.padding * (layout.row + s.C), layout.image);
      image = padded;
    }
    const Scratch scratch = {reinterpret_cast<float*>(memory + layout.all_sums) + thread * layout.sums,
                             reinterpret_cast<float*>(memory + layout.all_rows) + thread * layout.pooled_row,
                             memory + layout.places + thread * layout.pooled_row};
    forward_image(s, layout, image, weights, bias_f32, scratch, out + n * result_size,
                  winners ? winners + n * result_size : nullptr);
  });
}

template <class Call>
bool supports(const Call& call) {
  if constexpr (!pools<Call>) {
    if (call.relu) return false;
  }
  return call.x.dtype() == DType::bf16 && call.sizes.KW * call.sizes.C % 2 == 0 && cpu_features().avx512_bf16;
}

template <class Call>
int64_t forward_workspace(const Call& call) {
  return Layout<pools<Call>>(call.sizes).size;
}

REGISTER_KERNEL(conv2d_forward, cpu, "avx512_bf16",
                {.run = forward_avx512_bf16<Conv2dForward>,
                 .supported = supports<Conv2dForward>,
                 .workspace = forward_workspace<Conv2dForward>,
                 .rank = rank_of_bf16_pairs(10)});
REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "avx512_bf16",
                {.run = forward_avx512_bf16<Conv2dPoolReluForward>,
                 .supported = supports<Conv2dPoolReluForward>,
                 .workspace = forward_workspace<Conv2dPoolReluForward>,
                 .rank = rank_of_bf16_pairs(10)});

}  // namespace
}  // namespace hs

#endif
