// conv2d for bf16 on AMX tiles: the "amx" variant, for any tiles. With 32 channels, one pixel of an NHWC image is one
// row of a tile, and 16 consecutive pixels are the tile. So a 3x3 convolution is nine products of tiles loaded from
// shifted addresses, without a copy. With fewer channels, a row of a tile goes on with the next pixels, which belong to
// the next taps: a kernel row is one run of values, in steps of 32, and the rows of a tile overlap. What is left of a
// run, 16 values, is taken with the 16 before them, whose weights are zero there: no value of another field is
// multiplied, where it might be inf or NaN.
//   forward:          y[position, oc]  = sum over taps and c of x[position + tap, c] weight[tap, c, oc]
//   input gradient:   the same on dy with a border of zeros, with the taps in reverse order
// Positions run along the whole padded plane, across the ends of its rows; the sums of the few positions past the end
// of a row are discarded. For a stride, an image is stored as stride x stride planes: plane (i, j) has the pixels in
// every stride-th row from i on, and of these every stride-th from j on. In its plane each tap moves by one pixel.
//
// The weight gradient is in amx_backward.h. Zeros around the data are multiplied too: an inf or NaN in the weight makes
// its channel of dx NaN along the border. Channels are zero-padded to multiples of 16. Internal to
// kernels/conv2d*/amx.* and their test.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parts.h"

namespace hs::amx {

// With fewer input channels most of a tile is padding, and "direct" is faster.
inline constexpr int64_t least_channels = 16;

// One correlation: planes in, an image out.
struct Plane {
  int64_t H, W, channels;  // of each plane
  int64_t KH, KW, stride;  // of the kernel
  int64_t OH, OW, OC;
  int64_t C = round_up(channels, 16), padded_oc = round_up(OC, 16);          // as stored
  int64_t planes_h = std::min(stride, KH), planes_w = std::min(stride, KW);  // how many the kernel reads
  // A kernel row has row_taps taps in each plane, and one more in the first other_taps.
  int64_t row_taps = KW / stride, other_taps = KW % stride;
  // Pixels of all planes, and what a block of 32 positions may read behind them: it may begin at the last position, and
  // a run end in the pixel behind its last tap.
  int64_t stored = round_up(std::max(pixels(), positions() + 31 + last_tap() + 1), 32);

  int64_t pixels() const { return planes_h * planes_w * H * W; }
  int64_t last_tap() const {  // from a position, in pixels
    return (planes_h * planes_w - 1) * H * W + (KH - planes_h) / stride * W + (KW - planes_w) / stride;
  }
  int64_t taps() const { return KH * KW; }
  int64_t taps_in(int64_t j) const { return row_taps + (j < other_taps); }  // of a kernel row in plane (i, j)
  int64_t run(int64_t j) const { return taps_in(j) * C; }                   // values of one
  int64_t steps_in(int64_t j) const { return (run(j) + tile_depth - 1) / tile_depth; }
  // Where the weights of a run's values from `value` on, a multiple of 16, are in its steps.
  int64_t place(int64_t j, int64_t value) const {
    return run(j) > tile_depth && value >= run(j) / tile_depth * tile_depth ? value + 16 : value;
  }
  int64_t positions() const { return (OH - 1) * W + OW; }  // from the first output to the last
  int64_t weights() const {                                // cells of the packed ones
    int64_t steps = 0;
    for (int64_t j = 0; j < planes_w; ++j) steps += steps_in(j);
    return KH * steps * tile_depth / 2 * padded_oc;
  }

  // Calls body(kh, j, shift) for the kernel rows of each plane (i, j): their first tap is (kh, j), the next ones are
  // `stride` apart, and `shift` pixels from an output's position is the first one's input. The next one's is beside it.
  template <class Body>
  void for_runs(const Body& body) const {
    for (int64_t i = 0; i < planes_h; ++i) {
      for (int64_t kh = i, row = 0; kh < KH; kh += stride, ++row) {
        for (int64_t j = 0; j < planes_w; ++j) body(kh, j, ((i * planes_w + j) * H + row) * W);
      }
    }
  }
};

// x as the forward pass and the weight gradient read it.
inline Plane input_plane(const Conv2dSizes& s) {
  const int64_t H = s.stride == 1 ? s.H + 2 * s.padding : s.OH + (s.KH - 1) / s.stride;
  const int64_t W = s.stride == 1 ? s.W + 2 * s.padding : s.OW + (s.KW - 1) / s.stride;
  const int64_t C = s.C == 16 && s.KW <= s.stride ? 32 : s.C;  // a run of one tap has nothing before its last 16 values
  return {H, W, C, s.KH, s.KW, s.stride, s.OH, s.OW, s.OC};
}

// A pixel of C channels, or several of them.
inline void copy_pixels(const BFloat16* from, int64_t count, BFloat16* to) {
  if (count % 16 != 0) {
    std::copy_n(from, count, to);
    return;
  }
  for (int64_t i = 0; i < count; i += 16) std::memcpy(to + i, from + i, 16 * sizeof *to);  // a fixed size: no call
}

// Copies an image (H, W, C) to pixels of `channels` channels in rows of `row` pixels.
inline void copy_image(const BFloat16* image, int64_t H, int64_t W, int64_t C, int64_t row, int64_t channels,
                       BFloat16* to) {
  for (int64_t h = 0; h < H; ++h, image += W * C, to += row * channels) {
    if (C == channels) {
      std::copy_n(image, W * C, to);
    } else {
      for (int64_t w = 0; w < W; ++w) copy_pixels(image + w * C, C, to + w * channels);
    }
  }
}

// The planes of image n of x, with as much memory behind them as a block may read: where the image is, or, if it has a
// border, several planes or too little behind it, a copy in `planes`.
inline const BFloat16* planes_of(const Conv2dSizes& s, const BFloat16* images, int64_t n, const Plane& p,
                                 BFloat16* planes) {
  const int64_t size = s.H * s.W * s.C;
  const BFloat16* image = images + n * size;
  if (s.padding == 0 && s.stride == 1 && s.C == p.C && (s.N - n) * size >= p.stored * p.C) return image;
  std::fill_n(planes, p.stored * p.C, BFloat16{0});
  if (s.stride == 1) {
    copy_image(image, s.H, s.W, s.C, p.W, p.C, planes + s.padding * (p.W + 1) * p.C);
    return planes;
  }
  for (int64_t h = 0; h < s.H; ++h) {
    const int64_t i = (h + s.padding) % s.stride, row = (h + s.padding) / s.stride;
    if (i >= p.planes_h || row >= p.H) continue;
    for (int64_t w = 0, j = s.padding % s.stride, column = s.padding / s.stride; w < s.W; ++w) {
      if (j < p.planes_w && column < p.W) {
        copy_pixels(image + (h * s.W + w) * s.C, s.C,
                    planes + (((i * p.planes_w + j) * p.H + row) * p.W + column) * p.C);
      }
      if (++j == s.stride) j = 0, ++column;
    }
  }
  return planes;
}

// The weight (taps * channels, OC) becomes (runs, steps, 16, padded_oc) pairs along the values of each run, the bias
// (padded_oc) f32.
inline void pack_parameters(const Tensor& weight, const Tensor& bias, int64_t channels, const Plane& p, Cell* packed,
                            float* packed_bias) {
  std::fill_n(packed, p.weights(), Cell{0});
  const BFloat16* from = weight.data<BFloat16>();
  p.for_runs([&](int64_t kh, int64_t j, int64_t) {
    for (int64_t i = 0; i < p.taps_in(j); ++i) {
      const int64_t tap = kh * p.KW + j + i * p.stride;
      for (int64_t c = 0; c < channels; c += 16) {
        interleave_rows(&from[(tap * channels + c) * p.OC].bits, p.OC, std::min<int64_t>(16, channels - c), p.OC,
                        packed + p.place(j, i * p.C + c) / 2 * p.padded_oc, p.padded_oc);
      }
    }
    packed += p.steps_in(j) * tile_depth / 2 * p.padded_oc;
  });
  std::fill_n(packed_bias, p.padded_oc, 0.0f);
  if (bias.defined()) widen(bias.data<BFloat16>(), packed_bias, p.OC);
}

// The sums of the 32 positions from q on: (32, padded_oc). weights: as packed above, bias: (padded_oc).
template <class Tiles>
void correlate_block(const Plane& p, const BFloat16* planes, const Cell* weights, const float* bias, int64_t q,
                     float* sums) {
  const int64_t a_row = p.C * 2, b_row = p.padded_oc * 4;  // bytes
  for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
    with_block<Tiles>(2, p.padded_oc - oc > 16 ? 2 : 1, [&]<class Sums>() {
      Sums::load_sums(bias + oc, 0, 0);  // the same row 16 times
      const Cell* b = weights + oc;
      p.for_runs([&](int64_t, int64_t j, int64_t shift) {
        const BFloat16* const a = planes + (q + shift) * p.C;
        for (int64_t value = 0; value < p.run(j); value += tile_depth, b += 16 * p.padded_oc) {
          const int64_t first = std::min(value, std::max<int64_t>(0, p.run(j) - tile_depth));
          Sums::multiply(a + first, a_row, 16 * a_row, b, b_row, 64);
        }
      });
      Sums::store_sums(sums + oc, b_row, 16 * p.padded_oc);
    });
  }
}

// Where the pixels of a result belong: elements from row to row and from pixel to pixel.
struct Target {
  BFloat16* first;
  int64_t row, pixel;
};

// The result (OH, OW, OC) of a correlation. results: (32, padded_oc), rounded: the same in bf16.
template <class Tiles>
void correlate(const Plane& p, const BFloat16* planes, const Cell* weights, const float* bias, float* results,
               BFloat16* rounded, const Target& to) {
  const bool is_dense = to.pixel == p.OC && p.OC == p.padded_oc;
  for (int64_t q = 0; q < p.positions(); q += 32) {
    correlate_block<Tiles>(p, planes, weights, bias, q, results);
    if (!is_dense) narrow(results, rounded, 32 * p.padded_oc);
    for (int64_t row = q / p.W, i = q; i < std::min(q + 32, p.positions()); i = ++row * p.W) {
      // Of each row of the result, the pixels in this block; what is past the end of the row is not.
      const int64_t end = std::min(q + 32, row * p.W + p.OW);
      BFloat16* pixel = to.first + row * to.row + (i - row * p.W) * to.pixel;
      if (is_dense && i < end) narrow(results + (i - q) * p.padded_oc, pixel, (end - i) * p.OC);
      for (; !is_dense && i < end; ++i, pixel += to.pixel) {
        copy_pixels(rounded + (i - q) * p.padded_oc, p.OC, pixel);
      }
    }
  }
}

struct ForwardMemory : Parts {
  const Plane& p;
  Cell* weights = take<Cell>(p.weights());
  float* bias = take<float>(p.padded_oc);                     // (padded_oc)
  Each<BFloat16> planes = each<BFloat16>(p.stored * p.C);     // of a thread: (stored, C)
  Each<float> results = each<float>(32 * p.padded_oc);        // (32, padded_oc)
  Each<BFloat16> rounded = each<BFloat16>(32 * p.padded_oc);  // (32, padded_oc)
};

template <class Tiles>
void forward(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Plane p = input_plane(s);
  const ForwardMemory m{Parts(workspace), p};
  pack_parameters(call.weight, call.bias, s.C, p, m.weights, m.bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* out = call.y.mutable_data<BFloat16>();
  parallel(s.N, [&](int64_t n, int thread) {
    const BFloat16* planes = planes_of(s, images, n, p, m.planes[thread]);
    const Session<Tiles> session;
    correlate<Tiles>(p, planes, m.weights, m.bias, m.results[thread], m.rounded[thread],
                     {out + n * s.OH * s.OW * s.OC, s.OW * s.OC, s.OC});
  });
}

// Which calls the tiles support, on a machine that has them, and the workspace that a call needs.
inline bool takes_forward(const Tensor& x, const Conv2dSizes& s) {
  return x.dtype() == DType::bf16 && s.C >= least_channels;
}
inline bool takes(const Conv2dForward& call) { return takes_forward(call.x, call.sizes) && without_relu(call); }
inline int64_t forward_workspace(const Conv2dForward& call) {
  return ForwardMemory{Parts(), input_plane(call.sizes)}.bytes();
}

}  // namespace hs::amx
