// The gradients of the "amx" variant of conv2d (amx.h), for any tiles. The input gradient is a correlation of dy. The
// weight gradient is a product along the positions of the plane of x:
//   dweight[tap, c, oc] = sum over positions of x[position, c] dy[position - tap, oc]
// x is transposed (positions along a row of a tile). dy is packed in pairs of positions, for every first position, so
// that a tap may shift dy by any number of rows, and the rows of both tiles keep to their lines of the cache.
// Zeros around the data are multiplied too: an inf or NaN in x makes its channel's weight gradients NaN in the taps
// that reach it across the end of a row. Internal to kernels/conv2d*/amx.* and their test.
#pragma once

#include <utility>

#include "kernels/conv2d/amx.h"

namespace hs::amx {

// dy as the gradients read it: with a border of zeros if there is an input gradient. REQUIRES: then has_border()
struct GradientPlane {
  GradientPlane(const Conv2dSizes& s, bool needs_dx) : plane(gradient_plane(s)) {
    if (needs_dx) {
      first = ((s.KH - 1 - s.padding) * plane.W + s.KW - 1 - s.padding) * plane.C;
    } else {
      plane.H = s.OH, plane.W = s.OW;
      stored = s.OH * s.OW;
    }
  }
  Plane plane;
  int64_t first = 0;  // element of the first pixel of dy
  int64_t stored = plane.stored();
};

// Transposes a plane to (C, stored), with zeros behind it. other: (16, C).
inline void transpose_plane(const Plane& p, const BFloat16* plane, Cell* other, BFloat16* transposed) {
  Cell* to = reinterpret_cast<Cell*>(transposed);  // two positions each
  for (int64_t q = 0; q < p.stored(); q += 32) {
    const int64_t rows = std::clamp<int64_t>(p.H * p.W - q, 0, 32);
    if (rows > 0) interleave_rows(&plane[q * p.C].bits, p.C, rows, p.C, other, p.C);
    std::fill(other + (rows + 1) / 2 * p.C, other + 16 * p.C, Cell{0});
    transpose(other, p.C, 16, p.C, to + q / 2, p.stored() / 2);
  }
}

// The pairs of dy: (padded_oc / 32, 2, rows, 32). Those at even positions of the plane of x are apart from those at odd
// ones, so that a tile's rows are neighbours.
struct Pairs {
  static constexpr int64_t margin = 32;  // positions without dy before and behind: tiles begin anywhere

  explicit Pairs(const Plane& p) : rows((p.positions() + 1) / 2 + margin), size(2 * rows * p.padded_oc) {}
  // The pair (dy at q, dy at q + 1) of the channels from oc on, a multiple of 32; that of q + 2 is 32 cells later.
  int64_t at(int64_t q, int64_t oc) const { return ((oc / 32 * 2 + (q + margin) % 2) * rows + (q + margin) / 2) * 32; }

  int64_t rows, size;  // size: in cells
};

// Packs dy, whose first pixel is at `dy` in a plane of gradients; the pairs without dy are zero already.
inline void pack_gradient(const Plane& p, const BFloat16* dy, const Plane& gradients, const Pairs& layout,
                          Cell* pairs) {
  const bool has_gaps = p.W > p.OW;  // without them, all rows are one
  const int64_t runs = has_gaps ? p.OH : 1, length = has_gaps ? p.OW : p.OH * p.OW;
  for (int64_t run = 0; run < runs; ++run) {
    for (int64_t oc = 0; oc < p.OC; oc += 32) {
      const uint16_t* from = &dy[run * gradients.W * gradients.C + oc].bits;
      const int64_t q = run * p.W, count = std::min<int64_t>(32, p.OC - oc);
      Cell* before = pairs + layout.at(q - 1, oc);
      for (int64_t i = 0; i < count; ++i) before[i] = static_cast<Cell>(from[i]) << 16;
      interleave_rows(from, gradients.C, length, count, pairs + layout.at(q, oc), 32);
      if (length == 1) continue;
      interleave_rows(from + gradients.C, gradients.C, length - 1, count, pairs + layout.at(q + 1, oc), 32);
    }
  }
}

// At most so many positions of x and dy stay in the first-level cache while all taps of 32 x 32 channels are summed up.
inline constexpr int64_t most_positions = 384;

// dweight (taps, C, padded_oc) += that of one image: x transposed (C, stored), pairs of dy.
template <class Tiles>
void add_weight_gradient(const Plane& p, int64_t channels, const BFloat16* transposed, const Pairs& layout,
                         const Cell* pairs, float* dweight) {
  const int64_t a_row = p.stored() * 2, b_row = 32 * 4, sums_row = p.padded_oc * 4;  // bytes
  const int64_t blocks = (p.stored() + most_positions - 1) / most_positions;
  const int64_t block_positions = round_up((p.stored() + blocks - 1) / blocks, 32);
  for (int64_t c = 0; c < channels; c += 32) {
    with_block<Tiles>(channels - c > 16 ? 2 : 1, 2, [&]<class Sums>() {
      for (int64_t block = 0; block < p.stored(); block += block_positions) {
        for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
          for (int64_t tap = 0; tap < p.taps(); ++tap) {
            const int64_t shift = p.shift(tap);
            const int64_t begin = std::max(block, shift / 32 * 32);
            const int64_t end = std::min(block + block_positions, round_up(shift + p.positions(), 32));
            if (begin >= end) continue;
            float* sums = dweight + (tap * p.C + c) * p.padded_oc + oc;
            Sums::load_sums(sums, sums_row, 16 * p.padded_oc);
            for (int64_t q = begin; q < end; q += 32) {
              Sums::multiply(transposed + c * p.stored() + q, a_row, 16 * a_row, pairs + layout.at(q - shift, oc),
                             b_row, 64);
            }
            Sums::store_sums(sums, sums_row, 16 * p.padded_oc);
          }
        }
      }
    });
  }
}

// dbias (padded_oc) += that of one image: the sum over positions is a product with ones.
template <class Tiles>
void add_bias_gradient(const Plane& p, const Pairs& layout, const Cell* pairs, float* dbias) {
  alignas(64) BFloat16 ones[tile_depth];
  std::fill(std::begin(ones), std::end(ones), to_bfloat16(1));
  alignas(64) float sums[tile_rows * 32];  // every row is the same
  for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
    using Row = Block<Tiles, 1, 2>;
    Row::zero_sums();
    for (int64_t q = 0; q < p.positions(); q += 32) Row::multiply(ones, 0, 0, pairs + layout.at(q, oc), 32 * 4, 64);
    Row::store_sums(sums, 32 * 4, 0);
    for (int64_t i = 0; i < 32; ++i) dbias[oc + i] += sums[i];
  }
}

// The byte offsets of the workspace's parts.
struct BackwardLayout {
  int64_t dweights, dbiases, planes, transposed, other, pairs, dy, weights, zeros, results, size;
  BackwardLayout(const Conv2dSizes& s, const Plane& p, const GradientPlane& g, bool needs_dx) {
    const int64_t groups = std::max<int64_t>(conv2d_groups(s), 1);  // without samples, add_groups still has a total
    const Plane& d = g.plane;
    int64_t end = 0;
    const auto part = [&end](int64_t bytes) { return std::exchange(end, round_up(end + bytes, 64)); };
    dweights = part(groups * p.taps() * p.C * p.padded_oc * 4);           // (groups, taps, C, padded_oc)
    dbiases = part(groups * p.padded_oc * 4);                             // (groups, padded_oc)
    planes = part(threads() * p.stored() * p.C * 2);                      // (threads, stored, C) bf16
    transposed = part(threads() * p.stored() * p.C * 2);                  // (threads, C, stored) bf16
    other = part(threads() * 16 * p.C * 4);                               // (threads, 16, C) pairs
    pairs = part(threads() * Pairs(p).size * 4);                          // (threads, Pairs)
    dy = part(threads() * g.stored * d.C * 2);                            // (threads, stored, C) bf16
    weights = part(needs_dx ? d.taps() * d.C / 2 * d.padded_oc * 4 : 0);  // (taps, C/2, padded_oc) pairs
    zeros = part(needs_dx ? d.padded_oc * 4 : 0);                         // (padded_oc)
    results = part(needs_dx ? threads() * 32 * d.padded_oc * 4 : 0);      // (threads, 32, padded_oc)
    size = end;
  }
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

// Both gradients. dense_dy(n, plane, first) writes dy of sample n, (OH, OW, OC), sizes as in s, to the plane of which
// `first` is the first pixel. Call: Conv2dBackward, or another with these fields.
template <class Tiles, class Call, class DenseDy>
void backward_from(const Call& call, const Conv2dSizes& s, Tensor& workspace, const DenseDy& dense_dy) {
  const bool needs_dx = call.dx.defined(), needs_pairs = call.dweight.defined() || call.dbias.defined();
  const Plane p = input_plane(s);
  const GradientPlane g(s, needs_dx);
  const BackwardLayout layout(s, p, g, needs_dx);
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  const auto part = [memory]<class T>(int64_t begin, T) { return reinterpret_cast<T*>(memory + begin); };
  const int64_t groups = conv2d_groups(s), fields = p.taps() * p.C * p.padded_oc;
  const int64_t dy_size = g.stored * g.plane.C, x_size = p.stored() * p.C;
  const Pairs pairs_layout(p);
  float* dweights = part(layout.dweights, float{});
  float* dbiases = part(layout.dbiases, float{});
  Cell* weights = part(layout.weights, Cell{});
  float* zeros = part(layout.zeros, float{});
  const BFloat16* images = call.x.template data<BFloat16>();
  BFloat16* dx = needs_dx ? call.dx.template mutable_data<BFloat16>() : nullptr;
  if (needs_dx) {
    pack_turned_weights(s, call.weight.template data<BFloat16>(), g.plane, weights);
    std::fill_n(zeros, g.plane.padded_oc, 0.0f);
  }

  parallel(groups, [&](int64_t group, int thread) {
    BFloat16* own = part(layout.planes, BFloat16{}) + thread * x_size;
    BFloat16* transposed = part(layout.transposed, BFloat16{}) + thread * x_size;
    Cell* other = part(layout.other, Cell{}) + thread * 16 * p.C;
    Cell* pairs = part(layout.pairs, Cell{}) + thread * pairs_layout.size;
    BFloat16* dy_plane = part(layout.dy, BFloat16{}) + thread * dy_size;
    float* results = part(layout.results, float{}) + thread * 32 * g.plane.padded_oc;
    float* dw = dweights + group * fields;
    float* db = dbiases + group * p.padded_oc;
    std::fill_n(dw, fields, 0.0f);
    std::fill_n(db, p.padded_oc, 0.0f);
    std::fill_n(pairs, pairs_layout.size, Cell{0});
    std::fill_n(dy_plane, dy_size, BFloat16{0});
    const Session<Tiles> session;
    for (int64_t n = group * s.N / groups; n < (group + 1) * s.N / groups; ++n) {
      dense_dy(n, g.plane, dy_plane + g.first);
      if (needs_pairs) pack_gradient(p, dy_plane + g.first, g.plane, pairs_layout, pairs);
      if (call.dweight.defined()) {
        transpose_plane(p, plane_of(s, images, n, p, own), other, transposed);
        add_weight_gradient<Tiles>(p, s.C, transposed, pairs_layout, pairs, dw);
      }
      if (call.dbias.defined()) add_bias_gradient<Tiles>(p, pairs_layout, pairs, db);
      if (needs_dx) correlate<Tiles>(g.plane, dy_plane, weights, zeros, results, dx + n * s.H * s.W * s.C);
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
  backward_from<Tiles>(call, s, workspace, [&](int64_t n, const Plane& plane, BFloat16* first) {
    copy_image(dy + n * s.OH * s.OW * s.OC, s.OH, s.OW, s.OC, plane, first);
  });
}

inline bool has_border(const Conv2dSizes& s) { return s.stride == 1 && s.padding < s.KH && s.padding < s.KW; }
inline bool takes_backward(const Tensor& x, const Tensor& dx, const Conv2dSizes& s) {
  return takes_forward(x, s) && (!dx.defined() || has_border(s));
}
inline bool takes(const Conv2dBackward& call) {
  return takes_backward(call.x, call.dx, call.sizes) && without_relu(call);
}
inline int64_t backward_size(const Conv2dSizes& s, bool needs_dx) {
  return BackwardLayout(s, input_plane(s), GradientPlane(s, needs_dx), needs_dx).size;
}
inline int64_t backward_workspace(const Conv2dBackward& call) { return backward_size(call.sizes, call.dx.defined()); }

}  // namespace hs::amx
