// Forward of conv2d and conv2d_pool_relu for bf16 with AVX-512 BF16, by the tiles of avx512_bf16.h. conv2d_pool_relu
// computes the sums of two rows of the image, f32 in the first-level cache; then pool_sums() makes one row of windows
// of them. Its backward is that of "direct", which reads the same winners. Read next:
// kernels/conv2d/avx512_bf16_backward.cpp.
#include "engine/cpu_features.h"
#include "kernels/conv2d/dense_backward.h"
#include "kernels/conv2d_pool_relu/pool.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

template <class Call>
constexpr bool pools = std::is_same_v<Call, Conv2dPoolReluForward>;

template <bool pooled>
struct Memory : Parts {
  const Conv2dSizes& s;
  const int64_t W = s.W + 2 * s.padding, row = W * s.C;  // of the padded image, in elements
  const int64_t PW = s.OW / 2, padded_oc = round_up(s.OC, 16);
  Cell* weights = take<Cell>(s.K() / 2 * padded_oc);
  float* bias = take<float>(padded_oc);
  // Of each thread: the last tile may be longer than the rows.
  Each<float> sums = each<float>(((pooled ? 4 * PW : 0) + largest_tile) * panel_channels);
  Each<float> pooled_row = each<float>(pooled ? PW * panel_channels : 0);
  Each<uint8_t> places = each<uint8_t>(pooled_row.size);
  Each<BFloat16> images = each<BFloat16>(s.padding > 0 ? round_up((s.H + 2 * s.padding) * row, 32) : 0);
};

template <bool pooled>
void forward_image(const Memory<pooled>& m, int thread, const BFloat16* image, BFloat16* y, uint8_t* winner) {
  const Conv2dSizes& s = m.s;
  float *const sums = m.sums[thread], *const pooled_row = m.pooled_row[thread];
  uint8_t* const places = m.places[thread];
  const int64_t PW = m.PW, columns = pooled ? 2 * PW : s.OW;
  const int64_t strips = pooled ? s.OH / 2 : 1, pixels = pooled ? 4 * PW : s.OH * s.OW;  // a strip is pooled at once
  for (int64_t first = 0; first < m.padded_oc; first += panel_channels) {
    const int64_t channels = std::min(panel_channels, m.padded_oc - first);
    const int64_t valid = std::min(channels, s.OC - first), tile = tile_pixels(static_cast<int>(channels / 16));
    Tile t{{}, m.weights + first * (s.K() / 2), m.bias + first, s.KH, s.KW * s.C / 2, m.row};
    const int64_t run = channels == s.OC ? tile : 1;  // pixels whose outputs follow one another in y
    for (int64_t strip = 0; strip < strips; ++strip) {
      const BFloat16* row = image + strip * 2 * m.W * s.stride * s.C;
      for (int64_t pixel = 0, column = 0; pixel < pixels; pixel += tile) {
        const int64_t count = std::min(tile, pixels - pixel);
        for (int64_t i = 0; i < count; ++i) {
          t.fields[i] = row + column * s.stride * s.C;
          if (++column == columns) column = 0, row += m.W * s.stride * s.C;
        }
        std::fill(t.fields + count, t.fields + tile, t.fields[count - 1]);  // a short last tile repeats its last pixel
        tiles[channels / 16](t, sums + (pooled ? pixel * channels : 0));
        for (int64_t i = 0; !pooled && i < count; i += run) {
          narrow(sums + i * channels, y + (pixel + i) * s.OC + first, std::min(run, count - i) * valid);
        }
      }
      if (!pooled) continue;
      pool_sums(sums, {PW, channels, 2 * PW * channels}, channels, pooled_row, places);
      for (int64_t pw = 0; pw < PW; ++pw) {
        const int64_t at = (strip * PW + pw) * s.OC + first;
        narrow(pooled_row + pw * channels, y + at, valid);
        std::copy_n(places + pw * channels, valid, winner + at);
      }
    }
  }
}

template <class Call>
void forward_avx512_bf16(const Call& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Memory<pools<Call>> m{Parts(workspace), s};
  const int64_t image_size = s.H * s.W * s.C, result_size = call.y.size() / std::max<int64_t>(s.N, 1);
  const BFloat16* images = call.x.template data<BFloat16>();
  BFloat16* out = call.y.template mutable_data<BFloat16>();
  uint8_t* winners = nullptr;
  if constexpr (pools<Call>) winners = call.winner.template mutable_data<uint8_t>();
  pack_weights(s, m.padded_oc, call.weight.template data<BFloat16>(), m.weights);
  std::fill_n(m.bias, m.padded_oc, 0.0f);
  if (call.bias.defined()) widen(call.bias.template data<BFloat16>(), m.bias, s.OC);
  parallel(s.N, [&](int64_t n, int thread) {
    const BFloat16* image = images + n * image_size;
    if (s.padding > 0) {
      copy_padded(s, image, m.images[thread], m.images.size);
      image = m.images[thread];
    }
    forward_image(m, thread, image, out + n * result_size, winners ? winners + n * result_size : nullptr);
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
  return Memory<pools<Call>>{Parts(), call.sizes}.bytes();
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
