// The gradients of the "amx" variant of conv2d (amx.h), for any tiles. The input gradient is a correlation of dy. The
// weight gradient is a product along the positions of the plane of x:
//   dweight[tap, c, oc] = sum over positions of x[position, c] dy[position - tap, oc]
// x is transposed (positions along a row of a tile). dy is packed in pairs of positions, for every first position, so
// that a tap may shift dy by any number of rows, and the rows of both tiles keep to their lines of the cache.
// Zeros around the data are multiplied too: an inf or NaN in x makes its channel's weight gradients NaN in the taps
// that reach it across the end of a row. Internal to kernels/conv2d*/amx.* and their test.
#pragma once

#include "kernels/conv2d/amx.h"
#include "kernels/conv2d/groups.h"

namespace hs::amx {

// The phases of dx (groups.h) that a tap reaches. The gradient of each is a correlation of dy with stride 1.
template <class Body>
void for_reached(const Conv2dSizes& s, const Body& body) {
  for_phases(s, [&](const Phase& rows, const Phase& columns) {
    if (rows.reached > rows.begin && columns.reached > columns.begin) body(rows, columns);
  });
}

// dy as the gradients read it: with a border of zeros if there is an input gradient.
struct GradientPlane {
  GradientPlane(const Conv2dSizes& s, bool needs_dx) : H(s.OH), W(s.OW), C(round_up(s.OC, 16)) {
    if (needs_dx) {
      int64_t reached = 0;
      for_reached(s, [&](const Phase& rows, const Phase& columns) {
        top = std::max(top, rows.taps - 1 - rows.begin);
        left = std::max(left, columns.taps - 1 - columns.begin);
        H = std::max(H, rows.reached);
        W = std::max(W, columns.reached);
        reached += (rows.reached - rows.begin) * (columns.reached - columns.begin);
      });
      H += top, W += left;
      reaches_all = reached == s.H * s.W;
    }
    stored = needs_dx ? round_up(H * W + 32, 32) : H * W;
  }
  // The correlation of a phase, and its first pixel in this plane.
  Plane correlation(const Conv2dSizes& s, const Phase& rows, const Phase& columns) const {
    return {H, W, s.OC, rows.taps, columns.taps, 1, rows.reached - rows.begin, columns.reached - columns.begin, s.C};
  }
  int64_t begin(const Phase& rows, const Phase& columns) const {
    return ((top + rows.begin - (rows.taps - 1)) * W + left + columns.begin - (columns.taps - 1)) * C;
  }

  int64_t first() const { return (top * W + left) * C; }  // element of the first pixel of dy

  int64_t H, W, C;            // C is a multiple of 16
  int64_t top = 0, left = 0;  // of the border
  int64_t stored;             // pixels, and what a block may read behind them
  bool reaches_all = true;    // a tap reaches every pixel of x
};

// The weights of the input gradient, cells, phase by phase: taps from the last to the first, and the channels of dy in
// pairs. Packed as for any correlation.
inline int64_t turned_weights(const Conv2dSizes& s, const GradientPlane& g) {
  int64_t cells = 0;
  for_reached(s, [&](const Phase& rows, const Phase& columns) { cells += g.correlation(s, rows, columns).weights(); });
  return cells;
}

inline void pack_turned_weights(const Conv2dSizes& s, const BFloat16* weight, const GradientPlane& g, Cell* packed) {
  for_reached(s, [&](const Phase& rows, const Phase& columns) {
    const Plane p = g.correlation(s, rows, columns);
    for (int64_t a = rows.taps - 1; a >= 0; --a) {
      for (int64_t step = 0; step < p.steps_in(0); ++step, packed += 16 * p.padded_oc) {
        for (int64_t c = 0; c < p.padded_oc; c += 16) {
          BFloat16 values[16][tile_depth] = {};  // of 16 input channels, 32 values of the run
          for (int64_t value = 0; value < p.run(0); value += 16) {
            const int64_t half = p.place(0, value) - step * tile_depth;
            if (half < 0 || half >= tile_depth) continue;
            const int64_t b = columns.taps - 1 - value / p.C, oc = value % p.C;
            const int64_t tap = (rows.first + a * s.stride) * s.KW + columns.first + b * s.stride;
            for (int64_t k = c; k < std::min(c + 16, s.C); ++k) {
              std::copy_n(weight + (tap * s.C + k) * s.OC + oc, std::min<int64_t>(16, s.OC - oc), values[k - c] + half);
            }
          }
          transpose(reinterpret_cast<const Cell*>(values), 16, 16, 16, packed + c, p.padded_oc);
        }
      }
    }
  });
}

// Transposes the planes to (C, stored), with zeros behind them. other: (16, C).
inline void transpose_planes(const Plane& p, const BFloat16* planes, Cell* other, BFloat16* transposed) {
  Cell* to = reinterpret_cast<Cell*>(transposed);  // two positions each
  for (int64_t q = 0; q < p.stored; q += 32) {
    const int64_t rows = std::clamp<int64_t>(p.pixels() - q, 0, 32);
    if (rows > 0) interleave_rows(&planes[q * p.C].bits, p.C, rows, p.C, other, p.C);
    std::fill(other + (rows + 1) / 2 * p.C, other + 16 * p.C, Cell{0});
    transpose(other, p.C, 16, p.C, to + q / 2, p.stored / 2);
  }
}

// The pairs of dy: (OC / 32, 2, rows, 32), OC rounded up. Those at even positions of the plane of x are apart from
// those at odd ones, so that a tile's rows are neighbours.
struct Pairs {
  static constexpr int64_t margin = 32;  // positions without dy before and behind: tiles begin anywhere

  explicit Pairs(const Plane& p) : rows((p.positions() + 1) / 2 + margin), size(2 * rows * round_up(p.OC, 32)) {}
  // The pair (dy at q, dy at q + 1) of the channels from oc on, a multiple of 32; that of q + 2 is 32 cells later.
  int64_t at(int64_t q, int64_t oc) const { return ((oc / 32 * 2 + (q + margin) % 2) * rows + (q + margin) / 2) * 32; }

  int64_t rows, size;  // size: in cells
};

// Packs dy, whose first pixel is at `dy` in a plane of gradients; the pairs without dy are zero already.
inline void pack_gradient(const Plane& p, const BFloat16* dy, const GradientPlane& gradients, const Pairs& layout,
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
inline constexpr int64_t max_positions = 384;

// dweight (taps, C, padded_oc) += that of one image: x transposed (C, stored), pairs of dy.
template <class Tiles>
void add_weight_gradient(const Plane& p, int64_t channels, const BFloat16* transposed, const Pairs& layout,
                         const Cell* pairs, float* dweight) {
  const int64_t a_row = p.stored * 2, b_row = 32 * 4, sums_row = p.padded_oc * 4;  // bytes
  const int64_t blocks = (p.stored + max_positions - 1) / max_positions;
  const int64_t block_positions = round_up((p.stored + blocks - 1) / blocks, 32);
  const auto add_block = [&]<class Sums>(int64_t block, int64_t c, int64_t oc) {
    p.for_runs([&](int64_t kh, int64_t j, int64_t first_shift) {
      for (int64_t i = 0; i < p.taps_in(j); ++i) {
        const int64_t shift = first_shift + i;
        const int64_t begin = std::max(block, shift / 32 * 32);
        const int64_t end = std::min(block + block_positions, round_up(shift + p.positions(), 32));
        if (begin >= end) continue;
        float* sums = dweight + ((kh * p.KW + j + i * p.stride) * p.C + c) * p.padded_oc + oc;
        Sums::load_sums(sums, sums_row, 16 * p.padded_oc);
        for (int64_t q = begin; q < end; q += 32) {
          Sums::multiply(transposed + c * p.stored + q, a_row, 16 * a_row, pairs + layout.at(q - shift, oc), b_row, 64);
        }
        Sums::store_sums(sums, sums_row, 16 * p.padded_oc);
      }
    });
  };
  for (int64_t c = 0; c < channels; c += 32) {
    for (int64_t block = 0; block < p.stored; block += block_positions) {
      for (int64_t oc = 0; oc < p.padded_oc; oc += 32) {
        with_block<Tiles>(channels - c > 16 ? 2 : 1, p.padded_oc - oc > 16 ? 2 : 1,
                          [&]<class Sums>() { add_block.template operator()<Sums>(block, c, oc); });
      }
    }
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
    for (int64_t i = 0; i < std::min<int64_t>(32, p.padded_oc - oc); ++i) dbias[oc + i] += sums[i];
  }
}

struct BackwardMemory : Parts {
  const Conv2dSizes& s;
  const Plane& p;
  const GradientPlane& g;
  const bool needs_dx;
  const int64_t groups = conv2d_groups(s), padded_c = needs_dx ? round_up(s.C, 16) : 0;
  Each<float> dweights = each<float>(p.taps() * p.C * p.padded_oc, groups);  // of a group: (taps, C, padded_oc)
  Each<float> dbiases = each<float>(p.padded_oc, groups);                    // (padded_oc)
  Each<BFloat16> planes = each<BFloat16>(p.stored * p.C);                    // of a thread: (stored, C)
  Each<BFloat16> transposed = each<BFloat16>(p.stored * p.C);                // (C, stored)
  Each<uint32_t> other = each<uint32_t>(16 * p.C);                           // (16, C)
  Each<uint32_t> pairs = each<uint32_t>(Pairs(p).size);                      // Pairs
  Each<BFloat16> dy = each<BFloat16>(g.stored * g.C);                        // (stored, C)
  Cell* weights = take<Cell>(needs_dx ? turned_weights(s, g) : 0);
  float* zeros = take<float>(padded_c);                    // (padded_c)
  Each<float> results = each<float>(32 * padded_c);        // of a thread: (32, padded_c)
  Each<BFloat16> rounded = each<BFloat16>(32 * padded_c);  // (32, padded_c)
};

// The input gradient of one image, (H, W, C). dy: its plane.
template <class Tiles>
void input_gradient(const Conv2dSizes& s, const GradientPlane& g, const BFloat16* dy, const Cell* weights,
                    const float* zeros, float* results, BFloat16* rounded, BFloat16* dx) {
  if (!g.reaches_all) std::fill_n(dx, s.H * s.W * s.C, BFloat16{0});
  for_reached(s, [&](const Phase& rows, const Phase& columns) {
    const Plane p = g.correlation(s, rows, columns);
    correlate<Tiles>(p, dy + g.begin(rows, columns), weights, zeros, results, rounded,
                     {dx + (rows.pixel * s.W + columns.pixel) * s.C, s.stride * s.W * s.C, s.stride * s.C});
    weights += p.weights();
  });
}

// Both gradients. dense_dy(n, plane, first) writes dy of sample n, (OH, OW, OC), sizes as in s, to the plane of which
// `first` is the first pixel. Call: Conv2dBackward, or another with these fields.
template <class Tiles, class Call, class DenseDy>
void backward_from(const Call& call, const Conv2dSizes& s, Tensor& workspace, const DenseDy& dense_dy) {
  const bool needs_dx = call.dx.defined(), needs_pairs = call.dweight.defined() || call.dbias.defined();
  const Plane p = input_plane(s);
  const GradientPlane g(s, needs_dx);
  const BackwardMemory m{Parts(workspace), s, p, g, needs_dx};
  const Pairs pairs_layout(p);
  const BFloat16* images = call.x.template data<BFloat16>();
  BFloat16* dx = needs_dx ? call.dx.template mutable_data<BFloat16>() : nullptr;
  if (needs_dx) {
    pack_turned_weights(s, call.weight.template data<BFloat16>(), g, m.weights);
    std::fill_n(m.zeros, m.padded_c, 0.0f);
  }

  parallel(m.groups, [&](int64_t group, int thread) {
    float *dw = m.dweights.zeroed(group), *db = m.dbiases.zeroed(group);
    Cell* pairs = m.pairs.zeroed(thread);
    BFloat16* dy_plane = m.dy.zeroed(thread);
    const Session<Tiles> session;
    for (int64_t n = group * s.N / m.groups; n < (group + 1) * s.N / m.groups; ++n) {
      dense_dy(n, g, dy_plane + g.first());
      if (needs_pairs) pack_gradient(p, dy_plane + g.first(), g, pairs_layout, pairs);
      if (call.dweight.defined()) {
        const BFloat16* planes = planes_of(s, images, n, p, m.planes[thread]);
        transpose_planes(p, planes, m.other[thread], m.transposed[thread]);
        add_weight_gradient<Tiles>(p, s.C, m.transposed[thread], pairs_layout, pairs, dw);
      }
      if (call.dbias.defined()) add_bias_gradient<Tiles>(p, pairs_layout, pairs, db);
      if (needs_dx) {
        input_gradient<Tiles>(s, g, dy_plane, m.weights, m.zeros, m.results[thread], m.rounded[thread],
                              dx + n * s.H * s.W * s.C);
      }
    }
  });

  add_groups(s, m.dweights, call.accumulate, call.dweight, 1,
             [&](int64_t k) { return (k / s.C * p.C + k % s.C) * p.padded_oc; });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

template <class Tiles>
void backward(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const BFloat16* dy = call.dy.data<BFloat16>();
  backward_from<Tiles>(call, s, workspace, [&](int64_t n, const GradientPlane& plane, BFloat16* first) {
    copy_image(dy + n * s.OH * s.OW * s.OC, s.OH, s.OW, s.OC, plane.W, plane.C, first);
  });
}

inline bool takes(const Conv2dBackward& call) { return takes_forward(call.x, call.sizes) && without_relu(call); }
inline int64_t backward_size(const Conv2dSizes& s, bool needs_dx) {
  return BackwardMemory{Parts(), s, input_plane(s), GradientPlane(s, needs_dx), needs_dx}.bytes();
}
inline int64_t backward_workspace(const Conv2dBackward& call) { return backward_size(call.sizes, call.dx.defined()); }

}  // namespace hs::amx
