// conv2d without im2col, in f32 (f16 and bf16 are widened): the "direct" variant.
//
// Forward: for one output row position, the inputs under one kernel row are KW*C consecutive floats of an NHWC image.
// So the sum over K runs along memory, and a tile of several pixels by several vectors of output channels stays in
// registers: every weight that is loaded serves all pixels of the tile, every input serves all channels.
// Read next: kernels/conv2d/direct_backward.cpp.
#include <algorithm>
#include <limits>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#ifdef HS_ISA
#include "kernels/conv2d/direct.h"
#include "kernels/conv2d/direct_tile.h"

namespace hs::HS_ISA {
namespace {

struct ForwardLayout {
  int64_t padded_oc, weights, bias, images, spill, results;  // offsets in floats
  int64_t size;
  ForwardLayout(const Conv2dSizes& s, const Padded& p, bool is_widened) {
    padded_oc = round_up(s.OC, lanes);
    weights = 0;
    bias = weights + s.K() * padded_oc;
    images = bias + padded_oc;
    spill = images + threads() * p.size;
    results = spill + threads() * most_pixels * max_vectors * lanes;
    size = results + (is_widened ? threads() * s.OH * s.OW * s.OC : 0);
  }
};

int64_t forward_workspace(const Conv2dForward& call) {
  const Conv2dSizes& s = call.sizes;
  return ForwardLayout(s, Padded(s), is_16_bit(call.x)).size * static_cast<int64_t>(sizeof(float));
}

void forward_image(const Conv2dSizes& s, const Padded& p, const ForwardLayout& layout, const float* padded,
                   const float* weights, const float* bias, float floor, float* spill, float* y) {
  const int64_t pixels = s.OH * s.OW;
  for (int64_t first = 0; first < layout.padded_oc; first += max_vectors * lanes) {
    const int64_t channels = std::min(max_vectors * lanes, layout.padded_oc - first);
    const int vectors = static_cast<int>(channels / lanes);
    const int64_t valid = std::min(channels, s.OC - first);
    const int64_t tile = tile_pixels(vectors);
    TileArguments t{{}, {}, weights + first * s.K(), bias + first, floor, s.KH, s.KW * s.C, p.row};
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

template <class T>
void forward_typed(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Padded p(s);
  const ForwardLayout layout(s, p, stores_16_bits<T>);
  const int64_t result_size = s.OH * s.OW * s.OC;
  const float floor = call.relu ? 0 : -std::numeric_limits<float>::infinity();
  float* memory = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const T* images = call.x.data<T>();
  T* out = call.y.mutable_data<T>();
  pack_weights(s, call.weight.data<T>(), layout.padded_oc, memory + layout.weights);
  float* bias_f32 = memory + layout.bias;
  std::fill_n(bias_f32, layout.padded_oc, 0.0f);
  for (int64_t oc = 0; call.bias.defined() && oc < s.OC; ++oc) bias_f32[oc] = to_computing(call.bias.data<T>()[oc]);
  parallel(s.N, [&](int64_t n, int thread) {
    const T* image = images + n * s.H * s.W * s.C;
    float* mine = memory + layout.images + thread * p.size;
    float* spill = memory + layout.spill + thread * most_pixels * max_vectors * lanes;
    const auto run = [&](const float* padded, float* result) {
      forward_image(s, p, layout, padded, memory + layout.weights, bias_f32, floor, spill, result);
    };
    if (stores_16_bits<T> || s.padding > 0) copy_padded(s, p, image, mine);
    if constexpr (stores_16_bits<T>) {
      float* result = memory + layout.results + thread * result_size;
      run(mine, result);
      narrow(result, out + n * result_size, result_size);
    } else {
      run(s.padding > 0 ? mine : image, out + n * result_size);
    }
  });
}

void forward_direct(const Conv2dForward& call, Tensor& workspace) {
  const auto run = call.x.dtype() == DType::f16    ? forward_typed<Half>
                   : call.x.dtype() == DType::bf16 ? forward_typed<BFloat16>
                                                   : forward_typed<float>;
  run(call, workspace);
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/direct.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(conv2d_forward, cpu, "direct",
                {.run =
                     +[](const Conv2dForward& call, Tensor& workspace) {
                       HS_FOR_THIS_CPU(forward_direct)
                       (call, workspace);
                     },
                 .supported = [](const Conv2dForward& call) { return is_f32(call.x) || is_16_bit(call.x); },
                 .workspace = [](const Conv2dForward& call) { return HS_FOR_THIS_CPU(forward_workspace)(call); },
                 .rank = 10});

}  // namespace hs

#endif
