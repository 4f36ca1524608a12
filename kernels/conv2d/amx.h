// conv2d for bf16 on AMX tiles: the "amx" variant, for any tiles. With 32 channels, one pixel of an NHWC image is one
// row of a tile, and 16 consecutive pixels are the tile. So a 3x3 convolution is nine products of tiles loaded from
// shifted addresses, without a copy. Positions run along the whole padded plane, across the ends of its rows; the sums
// of the few positions past the end of a row are discarded.
//   forward:          y[position, oc]  = sum over taps and c of x[position + tap, c] weight[tap, c, oc]
//   input gradient:   the same on dy with a border of zeros, with the taps in reverse order
//   weight gradient:  dweight[tap, c, oc] = sum over positions of x[position + tap, c] dy[position, oc]; x is
//                     transposed (positions along a row), dy packed in pairs of positions
// Zeros around the data are multiplied too: an inf or NaN in x makes its channel's weight gradients NaN in the taps
// that reach it across the end of a row; one in the weight makes its channel of dx NaN along the border. Channels are
// zero-padded to multiples of 32. Internal to kernels/conv2d/amx.cpp and its test.
#pragma once

#include <algorithm>
#include <optional>

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
  int64_t rounded() const { return round_up(positions(), 32); }
  // The whole image, and all positions that a block may read.
  int64_t stored() const { return round_up(std::max(H * W, rounded() + shift(taps() - 1)), 32); }
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

// Copies an image of C channels into the middle of a plane of zeros.
inline void fill_plane(const BFloat16* image, int64_t H, int64_t W, int64_t C, int64_t border_h, int64_t border_w,
                       const Plane& p, BFloat16* plane) {
  std::fill_n(plane, p.stored() * p.C, BFloat16{0});
  for (int64_t h = 0; h < H; ++h) {
    BFloat16* row = plane + ((h + border_h) * p.W + border_w) * p.C;
    if (C == p.C) {
      std::copy_n(image + h * W * C, W * C, row);
      continue;
    }
    for (int64_t w = 0; w < W; ++w) std::copy_n(image + (h * W + w) * C, C, row + w * p.C);
  }
}

inline void fill_input(const Conv2dSizes& s, const BFloat16* image, const Plane& p, BFloat16* plane) {
  fill_plane(image, s.H, s.W, s.C, s.padding, s.padding, p, plane);
}

// to[i] = the pair (first[i], second[i]), then zeros up to `padded`. nullptr stands for a row of zeros.
inline void pack_pair(const BFloat16* first, const BFloat16* second, int64_t count, int64_t padded, Cell* to) {
  if (first && second) {
    interleave(&first->bits, &second->bits, count, to);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = (first ? first[i].bits : 0u) | (second ? static_cast<uint32_t>(second[i].bits) << 16 : 0u);
    }
  }
  std::fill(to + count, to + padded, Cell{0});
}

// (taps * channels, OC) -> (taps, C/2, padded_oc) pairs along the channels.
inline void pack_weights(const BFloat16* weight, int64_t channels, const Plane& p, Cell* packed) {
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    for (int64_t c = 0; c < p.C; c += 2, packed += p.padded_oc) {
      const auto row = [&](int64_t i) { return i < channels ? weight + (tap * channels + i) * p.OC : nullptr; };
      pack_pair(row(c), row(c + 1), p.OC, p.padded_oc, packed);
    }
  }
}

// The weights of the input gradient: taps from the last to the first, and the channels of dy in pairs.
inline void pack_turned_weights(const Conv2dSizes& s, const BFloat16* weight, const Plane& p, Cell* packed) {
  for (int64_t tap = p.taps() - 1; tap >= 0; --tap) {
    for (int64_t oc = 0; oc < p.C; oc += 2, packed += p.padded_oc) {
      std::fill_n(packed, p.padded_oc, Cell{0});
      for (int64_t c = 0; c < s.C && oc < s.OC; ++c) {
        const BFloat16* pair = weight + (tap * s.C + c) * s.OC + oc;
        packed[c] = pair[0].bits | (oc + 1 < s.OC ? static_cast<uint32_t>(pair[1].bits) << 16 : 0u);
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
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      const BFloat16* a = plane + (q + p.shift(tap)) * p.C;
      for (int64_t c = 0; c < p.C; c += 32, b += 16 * p.padded_oc) {
        Whole::multiply(a + c, a_row, 16 * a_row, b, b_row, 64);
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
    for (int64_t i = q; i < std::min(q + 32, p.positions()); ++i) {
      if (i % p.W >= p.OW) continue;  // past the end of a row
      narrow(results + (i - q) * p.padded_oc, y + (i / p.W * p.OW + i % p.W) * p.OC, p.OC);
    }
  }
}

// Transposes a plane to (C, stored). other: (16, C).
inline void transpose_plane(const Plane& p, const BFloat16* plane, Cell* other, BFloat16* transposed) {
  Cell* to = reinterpret_cast<Cell*>(transposed);  // two positions each
  for (int64_t q = 0; q < p.stored(); q += 32) {
    for (int64_t i = 0; i < 16; ++i) {
      const BFloat16* row = plane + (q + 2 * i) * p.C;
      interleave(&row->bits, &row[p.C].bits, p.C, other + i * p.C);
    }
    transpose(other, p.C, 16, p.C, to + q / 2, p.stored() / 2);
  }
}

// Packs dy (OH, OW, OC) at its positions in the plane: (rounded/2, padded_oc) pairs of positions.
inline void pack_gradient(const Plane& p, const BFloat16* dy, Cell* packed) {
  const auto row = [&](int64_t q) {
    const bool exists = q < p.positions() && q % p.W < p.OW;
    return exists ? dy + (q / p.W * p.OW + q % p.W) * p.OC : nullptr;
  };
  for (int64_t q = 0; q < p.rounded(); q += 2, packed += p.padded_oc) {
    pack_pair(row(q), row(q + 1), p.OC, p.padded_oc, packed);
  }
}

// Samples whose weight gradients are added up in the tiles before the sums are stored.
inline constexpr int64_t chunk = 4;

// dweight (taps, C, padded_oc) and dbias (padded_oc) += for `samples` samples: transposed (samples, C, stored),
// dy (samples, rounded/2, padded_oc) pairs.
template <class Tiles>
void add_weight_gradient(const Plane& p, int64_t channels, int64_t samples, const BFloat16* transposed, const Cell* dy,
                         float* dweight, float* dbias) {
  const int64_t a_row = p.stored() * 2, b_row = p.padded_oc * 4;  // bytes
  const int64_t a_size = p.C * p.stored(), b_size = p.rounded() / 2 * p.padded_oc;
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    for (int64_t c = 0; c < channels; c += 32) {
      with_block<Tiles>(channels - c > 16 ? 2 : 1, 2, [&]<class Sums>() {
        for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
          float* sums = dweight + (tap * p.C + c) * p.padded_oc + oc;
          Sums::load_sums(sums, b_row, 16 * p.padded_oc);
          for (int64_t i = 0; i < samples; ++i) {
            const BFloat16* a = transposed + i * a_size + c * p.stored() + p.shift(tap);
            const Cell* b = dy + i * b_size + oc;
            for (int64_t q = 0; q < p.rounded(); q += 32) {
              Sums::multiply(a + q, a_row, 16 * a_row, b + q / 2 * p.padded_oc, b_row, 64);
            }
          }
          Sums::store_sums(sums, b_row, 16 * p.padded_oc);
        }
      });
    }
  }
  // The sum over positions is a product with ones.
  alignas(64) BFloat16 ones[tile_depth];
  std::fill(std::begin(ones), std::end(ones), to_bfloat16(1));
  alignas(64) float sums[tile_rows * 32];  // every row is the same
  for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
    using Row = Block<Tiles, 1, 2>;
    Row::zero_sums();
    for (int64_t q = 0; q < samples * p.rounded(); q += 32) {
      Row::multiply(ones, 0, 0, dy + q / 2 * p.padded_oc + oc, b_row, 64);
    }
    Row::store_sums(sums, 32 * 4, 0);
    for (int64_t i = 0; i < 32; ++i) dbias[oc + i] += sums[i];
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

struct BackwardLayout {
  int64_t dweights, dbiases, planes, transposed, other, gradients, size;  // gradients: then a ForwardLayout for dx
  BackwardLayout(const Conv2dSizes& s, const Plane& p) {
    const int64_t groups = std::max<int64_t>(conv2d_groups(s), 1);   // without samples, add_groups still has a total
    dweights = 0;                                                    // (groups, taps, C, padded_oc)
    dbiases = dweights + groups * p.taps() * p.C * p.padded_oc * 4;  // (groups, padded_oc)
    planes = dbiases + groups * p.padded_oc * 4;                     // (threads, stored, C) bf16
    transposed = planes + threads() * p.stored() * p.C * 2;          // (threads, chunk, C, stored) bf16
    other = transposed + threads() * chunk * p.stored() * p.C * 2;   // (threads, 16, C) pairs
    gradients = other + threads() * 16 * p.C * 4;                    // (threads, chunk, rounded/2, padded_oc) pairs
    size = gradients + threads() * chunk * p.rounded() / 2 * p.padded_oc * 4;
  }
};

template <class Tiles>
void forward(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Plane p = input_plane(s);
  const ForwardLayout layout(p);
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias_f32 = reinterpret_cast<float*>(memory + layout.bias);
  pack_weights(call.weight.data<BFloat16>(), s.C, p, weights);
  std::fill_n(bias_f32, p.padded_oc, 0.0f);
  if (call.bias.defined()) widen(call.bias.data<BFloat16>(), bias_f32, s.OC);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* out = call.y.mutable_data<BFloat16>();
  parallel(s.N, [&](int64_t n, int thread) {
    BFloat16* plane = reinterpret_cast<BFloat16*>(memory + layout.planes) + thread * p.stored() * p.C;
    float* results = reinterpret_cast<float*>(memory + layout.results) + thread * 32 * p.padded_oc;
    fill_input(s, images + n * s.H * s.W * s.C, p, plane);
    const Session<Tiles> session;
    correlate<Tiles>(p, plane, weights, bias_f32, results, out + n * s.OH * s.OW * s.OC);
  });
}

// The input gradient of a batch: dy with a border of zeros, correlated with the reversed taps.
// REQUIRES: has_border()
template <class Tiles>
class InputGradient {
 public:
  InputGradient(const Conv2dSizes& s, const Tensor& weight, uint8_t* memory, Tensor& dx)
      : s_(s), plane_(gradient_plane(s)), layout_(plane_), memory_(memory), dx_(dx.mutable_data<BFloat16>()) {
    pack_turned_weights(s_, weight.data<BFloat16>(), plane_, weights());
    std::fill_n(zeros(), plane_.padded_oc, 0.0f);
  }

  // Of sample n, from its dy (OH, OW, OC). REQUIRES: a Session of this thread
  void run(int64_t n, const BFloat16* dy, int thread) const {
    BFloat16* border = reinterpret_cast<BFloat16*>(memory_ + layout_.planes) + thread * plane_.stored() * plane_.C;
    float* results = reinterpret_cast<float*>(memory_ + layout_.results) + thread * 32 * plane_.padded_oc;
    fill_plane(dy, s_.OH, s_.OW, s_.OC, s_.KH - 1 - s_.padding, s_.KW - 1 - s_.padding, plane_, border);
    correlate<Tiles>(plane_, border, weights(), zeros(), results, dx_ + n * s_.H * s_.W * s_.C);
  }

 private:
  Cell* weights() const { return reinterpret_cast<Cell*>(memory_ + layout_.weights); }
  float* zeros() const { return reinterpret_cast<float*>(memory_ + layout_.bias); }

  const Conv2dSizes& s_;
  const Plane plane_;
  const ForwardLayout layout_;
  uint8_t* memory_;
  BFloat16* dx_;
};

// dweight (K, OC) (+)= the groups' sums, (groups, taps, C, padded_oc), in order.
inline void add_groups(const Conv2dSizes& s, const Plane& p, float* sums, bool accumulate, Tensor& dweight) {
  const int64_t groups = conv2d_groups(s), size = p.taps() * p.C * p.padded_oc;
  for_float_type(dweight.dtype(), [&]<class T>() {
    T* to = dweight.mutable_data<T>();
    parallel_ranges(s.K(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        float* total = sums + (k / s.C * p.C + k % s.C) * p.padded_oc;  // of the first group
        if (groups == 0) std::fill_n(total, s.OC, 0.0f);
        for (int64_t group = 1; group < groups; ++group) {
          const float* from = total + group * size;
          for (int64_t oc = 0; oc < s.OC; ++oc) total[oc] += from[oc];
        }
        for (int64_t oc = 0; oc < s.OC; ++oc) {
          const Computing<T> before = accumulate ? to_computing(to[k * s.OC + oc]) : 0;
          to[k * s.OC + oc] = from_computing<T>(before + total[oc]);
        }
      }
    });
  });
}

// Both gradients. dense_dy(n, thread): dy of sample n, (OH, OW, OC), sizes as in s, valid until the thread's next call.
// Call: Conv2dBackward, or another with these fields.
template <class Tiles, class Call, class DenseDy>
void backward_from(const Call& call, const Conv2dSizes& s, uint8_t* memory, const DenseDy& dense_dy) {
  const Plane p = input_plane(s);
  const BackwardLayout layout(s, p);
  const int64_t groups = conv2d_groups(s), image_size = s.H * s.W * s.C, fields = p.taps() * p.C * p.padded_oc;
  const int64_t plane_size = p.stored() * p.C, packed_size = p.rounded() / 2 * p.padded_oc;
  float* dweights = reinterpret_cast<float*>(memory + layout.dweights);
  float* dbiases = reinterpret_cast<float*>(memory + layout.dbiases);
  const BFloat16* images = call.x.template data<BFloat16>();
  const bool wants_weights = call.dweight.defined() || call.dbias.defined();
  std::optional<InputGradient<Tiles>> input_gradient;
  if (call.dx.defined()) input_gradient.emplace(s, call.weight, memory + layout.size, call.dx);

  parallel(groups, [&](int64_t group, int thread) {
    BFloat16* plane = reinterpret_cast<BFloat16*>(memory + layout.planes) + thread * plane_size;
    BFloat16* transposed = reinterpret_cast<BFloat16*>(memory + layout.transposed) + thread * chunk * plane_size;
    Cell* other = reinterpret_cast<Cell*>(memory + layout.other) + thread * 16 * p.C;
    Cell* gradients = reinterpret_cast<Cell*>(memory + layout.gradients) + thread * chunk * packed_size;
    float* dw = dweights + group * fields;
    float* db = dbiases + group * p.padded_oc;
    std::fill_n(dw, fields, 0.0f);
    std::fill_n(db, p.padded_oc, 0.0f);
    const Session<Tiles> session;
    const int64_t end = (group + 1) * s.N / groups;
    for (int64_t first = group * s.N / groups; first < end; first += chunk) {
      const int64_t samples = std::min(chunk, end - first);
      for (int64_t i = 0; i < samples; ++i) {
        const BFloat16* dy = dense_dy(first + i, thread);
        if (wants_weights) {
          fill_input(s, images + (first + i) * image_size, p, plane);
          transpose_plane(p, plane, other, transposed + i * plane_size);
          pack_gradient(p, dy, gradients + i * packed_size);
        }
        if (input_gradient) input_gradient->run(first + i, dy, thread);
      }
      if (wants_weights) add_weight_gradient<Tiles>(p, s.C, samples, transposed, gradients, dw, db);
    }
  });

  if (call.dweight.defined()) add_groups(s, p, dweights, call.accumulate, call.dweight);
  if (call.dbias.defined()) {
    update_gradient(call.dbias, call.accumulate, [&](int64_t oc, float sum) {
      for (int64_t group = 0; group < groups; ++group) sum += dbiases[group * p.padded_oc + oc];
      return sum;
    });
  }
}

template <class Tiles>
void backward(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const BFloat16* dy = call.dy.data<BFloat16>();
  backward_from<Tiles>(call, s, workspace.mutable_data<uint8_t>(),
                       [&](int64_t n, int) { return dy + n * s.OH * s.OW * s.OC; });
}

// Which calls the tiles support, on a machine that has them, and the workspace that a call needs.
inline bool takes_forward(const Tensor& x, const Conv2dSizes& s) {
  return x.dtype() == DType::bf16 && s.stride == 1 && s.C >= least_channels;
}
inline bool takes(const Conv2dForward& call) { return takes_forward(call.x, call.sizes); }
inline bool has_border(const Conv2dSizes& s) { return s.stride == 1 && s.padding < s.KH && s.padding < s.KW; }
inline bool takes(const Conv2dBackward& call) {
  return takes_forward(call.x, call.sizes) && (!call.dx.defined() || has_border(call.sizes));
}
inline int64_t forward_workspace(const Conv2dForward& call) { return ForwardLayout(input_plane(call.sizes)).size; }
inline int64_t backward_size(const Conv2dSizes& s, bool needs_dx) {
  return BackwardLayout(s, input_plane(s)).size + (needs_dx ? ForwardLayout(gradient_plane(s)).size : 0);
}
inline int64_t backward_workspace(const Conv2dBackward& call) { return backward_size(call.sizes, call.dx.defined()); }

}  // namespace hs::amx
