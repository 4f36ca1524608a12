// conv2d for bf16 on AMX tiles: the "amx" variant, for any tiles. With 32 channels, one pixel of an NHWC image is one
// row of a tile, and 16 consecutive pixels are the tile. So a 3x3 convolution is nine products of tiles loaded from
// shifted addresses, without a copy. Positions run along the whole padded plane, across the ends of its rows; the sums
// of the few positions past the end of a row are discarded.
//   forward:          y[position, oc]  = sum over taps and c of x[position + tap, c] weight[tap, c, oc]
//   input gradient:   the same on dy with a border of zeros, with the taps in reverse order
// The weight gradient is in amx_backward.h. Zeros around the data are multiplied too: an inf or NaN in the weight makes
// its channel of dx NaN along the border. Channels are zero-padded to multiples of 32. Internal to
// kernels/conv2d*/amx.* and their test.
#pragma once

#include <algorithm>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

namespace hs::amx {

// With fewer input channels most of a tile is padding, and "direct" is faster.
inline constexpr int64_t least_channels = 16;

// One correlation with stride 1: planes in, planes out.
struct Plane {
  int64_t H, W, C;         // of the input with its border; C is a multiple of 32
  int64_t KH, KW, OH, OW;  // OH = H - KH + 1
  int64_t OC, padded_oc;   // requested, and rounded up to a multiple of 32
  int64_t taps() const { return KH * KW; }
  int64_t shift(int64_t tap) const { return tap / KW * W + tap % KW; }  // positions
  int64_t positions() const { return (OH - 1) * W + OW; }               // from the first output to the last
  // The whole image, and all positions that a block of 32 may read, wherever it begins.
  int64_t stored() const { return round_up(std::max(H * W, positions() + 31 + shift(taps() - 1)), 32); }
};

// x as the forward pass and the weight gradient read it.
inline Plane input_plane(const Conv2dSizes& s) {
  const int64_t padded_oc = round_up(s.OC, 32);
  return {s.H + 2 * s.padding, s.W + 2 * s.padding, round_up(s.C, 32), s.KH, s.KW, s.OH, s.OW, s.OC, padded_oc};
}

// dy as the input gradient reads it. REQUIRES: padding less than KH and KW
inline Plane gradient_plane(const Conv2dSizes& s) {
  return {s.H + s.KH - 1, s.W + s.KW - 1, round_up(s.OC, 32), s.KH, s.KW, s.H, s.W, s.C, round_up(s.C, 32)};
}

// Copies an image (H, W, C) to pixels of p.C channels in the rows of a plane.
inline void copy_image(const BFloat16* image, int64_t H, int64_t W, int64_t C, const Plane& p, BFloat16* to) {
  for (int64_t h = 0; h < H; ++h, image += W * C, to += p.W * p.C) {
    if (C == p.C) {
      std::copy_n(image, W * C, to);
    } else {
      for (int64_t w = 0; w < W; ++w) std::copy_n(image + w * C, C, to + w * p.C);
    }
  }
}

// The plane of image n of x, with as much memory behind it as a block may read: where the image is, or, if it has a
// border or too little behind it, a copy in `plane`.
inline const BFloat16* plane_of(const Conv2dSizes& s, const BFloat16* images, int64_t n, const Plane& p,
                                BFloat16* plane) {
  const int64_t size = s.H * s.W * s.C;
  if (s.padding == 0 && s.C == p.C && (s.N - n) * size >= p.stored() * p.C) return images + n * size;
  std::fill_n(plane, p.stored() * p.C, BFloat16{0});
  copy_image(images + n * size, s.H, s.W, s.C, p, plane + s.padding * (p.W + 1) * p.C);
  return plane;
}

// The weight (taps * channels, OC) becomes (taps, C/2, padded_oc) pairs along the channels, the bias (padded_oc) f32.
inline void pack_parameters(const Tensor& weight, const Tensor& bias, int64_t channels, const Plane& p, Cell* packed,
                            float* packed_bias) {
  std::fill_n(packed, p.taps() * p.C / 2 * p.padded_oc, Cell{0});
  const BFloat16* from = weight.data<BFloat16>();
  for (int64_t tap = 0; tap < p.taps(); ++tap, from += channels * p.OC, packed += p.C / 2 * p.padded_oc) {
    interleave_rows(&from->bits, p.OC, channels, p.OC, packed, p.padded_oc);
  }
  std::fill_n(packed_bias, p.padded_oc, 0.0f);
  if (bias.defined()) widen(bias.data<BFloat16>(), packed_bias, p.OC);
}

// The weights of the input gradient: taps from the last to the first, and the channels of dy in pairs.
inline void pack_turned_weights(const Conv2dSizes& s, const BFloat16* weight, const Plane& p, Cell* packed) {
  for (int64_t tap = p.taps() - 1; tap >= 0; --tap, packed += p.C / 2 * p.padded_oc) {
    for (int64_t c = 0; c < p.padded_oc; c += 16) {
      for (int64_t oc = 0; oc < p.C; oc += 32) {
        BFloat16 rows[16][32] = {};
        for (int64_t i = c; i < std::min(c + 16, s.C) && oc < s.OC; ++i) {
          std::copy_n(weight + (tap * s.C + i) * s.OC + oc, std::min<int64_t>(32, s.OC - oc), rows[i - c]);
        }
        transpose(reinterpret_cast<const Cell*>(rows), 16, 16, 16, packed + oc / 2 * p.padded_oc + c, p.padded_oc);
      }
    }
  }
}

// The sums of the 32 positions from q on: (32, padded_oc). weights: (taps, C/2, padded_oc) pairs, bias: (padded_oc).
template <class Tiles>
void correlate_block(const Plane& p, const BFloat16* plane, const Cell* weights, const float* bias, int64_t q,
                     float* sums) {
  using Whole = Block<Tiles, 2, 2>;
  const int64_t a_row = p.C * 2, b_row = p.padded_oc * 4;  // bytes
  for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
    Whole::load_sums(bias + oc, 0, 0);  // the same row 16 times
    const Cell* b = weights + oc;
    for (int64_t kh = 0; kh < p.KH; ++kh) {  // two loops: a division for each tap would take as long as its tiles
      for (int64_t kw = 0; kw < p.KW; ++kw) {
        const BFloat16* a = plane + (q + kh * p.W + kw) * p.C;
        for (int64_t c = 0; c < p.C; c += 32, b += 16 * p.padded_oc) {
          Whole::multiply(a + c, a_row, 16 * a_row, b, b_row, 64);
        }
      }
    }
    Whole::store_sums(sums + oc, b_row, 16 * p.padded_oc);
  }
}

// y (OH, OW, OC) from a plane. results: (32, padded_oc).
template <class Tiles>
void correlate(const Plane& p, const BFloat16* plane, const Cell* weights, const float* bias, float* results,
               BFloat16* y) {
  for (int64_t q = 0; q < p.positions(); q += 32) {
    correlate_block<Tiles>(p, plane, weights, bias, q, results);
    for (int64_t row = q / p.W, i = q; i < std::min(q + 32, p.positions()); i = ++row * p.W) {
      // Of each row of y, the pixels in this block; what is past the end of the row is not.
      const int64_t end = std::min(q + 32, row * p.W + p.OW);
      const int64_t together = p.OC == p.padded_oc ? std::max<int64_t>(end - i, 1) : 1;
      for (; i < end; i += together) {
        narrow(results + (i - q) * p.padded_oc, y + (i - row * (p.W - p.OW)) * p.OC, together * p.OC);
      }
    }
  }
}

// The byte offsets of a workspace's parts.
struct ForwardLayout {
  int64_t weights, bias, planes, results, size;
  explicit ForwardLayout(const Plane& p) {
    weights = 0;                                            // (taps, C/2, padded_oc) pairs
    bias = weights + p.taps() * p.C / 2 * p.padded_oc * 4;  // (padded_oc)
    planes = bias + p.padded_oc * 4;                        // (threads, stored, C) bf16
    results = planes + threads() * p.stored() * p.C * 2;    // (threads, 32, padded_oc)
    size = results + threads() * 32 * p.padded_oc * 4;
  }
};

template <class Tiles>
void forward(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Plane p = input_plane(s);
  const ForwardLayout layout(p);
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias = reinterpret_cast<float*>(memory + layout.bias);
  pack_parameters(call.weight, call.bias, s.C, p, weights, bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* out = call.y.mutable_data<BFloat16>();
  parallel(s.N, [&](int64_t n, int thread) {
    BFloat16* own = reinterpret_cast<BFloat16*>(memory + layout.planes) + thread * p.stored() * p.C;
    float* results = reinterpret_cast<float*>(memory + layout.results) + thread * 32 * p.padded_oc;
    const BFloat16* plane = plane_of(s, images, n, p, own);
    const Session<Tiles> session;
    correlate<Tiles>(p, plane, weights, bias, results, out + n * s.OH * s.OW * s.OC);
  });
}

// Which calls the tiles support, on a machine that has them, and the workspace that a call needs.
inline bool takes_forward(const Tensor& x, const Conv2dSizes& s) {
  return x.dtype() == DType::bf16 && s.stride == 1 && s.C >= least_channels;
}
inline bool takes(const Conv2dForward& call) { return takes_forward(call.x, call.sizes) && without_relu(call); }
inline int64_t forward_workspace(const Conv2dForward& call) { return ForwardLayout(input_plane(call.sizes)).size; }

}  // namespace hs::amx
