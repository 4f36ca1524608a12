// The first layer, images of one channel, in bf16 on AMX tiles, for any tiles. A tile wants 32 numbers along K, and a
// field has KH * KW, so most products are with zeros; the unit is fast enough for that, if tiles come for little.
//
// Forward: three rows of the image and a row of ones are interleaved, so that a field of up to 3 x 8 pixels is one run
// of memory, and the fields of neighbouring positions begin one pixel, 8 bytes, apart. The weight of the first 1 is the
// bias:
//      x[h][0] x[h+1][0] x[h+2][0] 1  x[h][1] x[h+1][1] x[h+2][1] 1  ...
// Weight gradient: a product along the positions of a row. The rows of one tile are the taps, the image shifted by
// each, and those of the other are dy in pairs of positions, which is what two neighbours of a pooling window are:
//      dweight[tap, oc] = sum over rows h and positions w of x[h + kh, w + kw] dy[h, w, oc]
// Zeros are multiplied: an inf or NaN in x makes NaN of the positions and taps around it. Internal to amx.h.
#pragma once

#include "kernels/conv2d/amx_backward.h"
#include "kernels/conv2d_pool_relu/pool.h"

namespace hs::amx::one_channel {

inline constexpr int64_t max_rows = 3, max_columns = 8;  // of a kernel
inline constexpr int64_t block = 32;                     // positions of a row, or output channels, in two tiles

inline bool takes_forward(const Tensor& x, const Conv2dSizes& s) {
  return x.dtype() == DType::bf16 && s.stride == 1 && s.C == 1 && s.KH <= max_rows && s.KW <= max_columns;
}
inline bool takes_backward(const Tensor& x, const Tensor& dx, const Conv2dSizes& s) {
  return takes_forward(x, s) && s.KH * s.KW <= tile_rows && !dx.defined();
}

struct Image {
  const Conv2dSizes& s;
  int64_t H = s.H + 2 * s.padding, W = s.W + 2 * s.padding;  // with its border
  int64_t PH = s.OH / 2, PW = s.OW / 2;                      // windows
  int64_t positions = round_up(2 * PW, block);               // of a row: what windows cover, in whole blocks
  int64_t padded_oc = round_up(s.OC, block);
  // Elements: with zeros behind the last row, for tiles that reach past it.
  int64_t stored = round_up((H + max_rows) * W + positions + max_columns, 32);
};

struct ForwardMemory : Parts {
  const Image& image;
  const int64_t row = 2 * round_up(image.positions + max_columns, 8);  // cells of an interleaved row
  const int64_t below = image.positions * image.padded_oc;             // floats of a row of sums
  Cell* weights = take<Cell>(tile_rows * image.padded_oc);             // (16, padded_oc) pairs
  Each<BFloat16> planes = each<BFloat16>(image.stored);                // of a thread: (stored)
  Each<uint32_t> rows = each<uint32_t>(2 * image.PH * row);            // (2 PH, row)
  Each<float> sums = each<float>(2 * below);                           // (2, positions, padded_oc)
  Each<float> results = each<float>(image.PW * image.padded_oc);       // (PW, padded_oc)
  Each<uint8_t> winners = each<uint8_t>(results.size);                 // (PW, padded_oc)
};

// The weight (KH*KW, OC) and the bias become (16, padded_oc) pairs along k = 4 * kw + kh; the bias is that of kh = 3.
inline void pack_parameters(const Conv2dSizes& s, const Tensor& weight, const Tensor& bias, int64_t padded_oc,
                            Cell* packed) {
  std::fill_n(packed, tile_rows * padded_oc, Cell{0});
  const auto put = [&](int64_t k, const BFloat16* row) {
    for (int64_t oc = 0; oc < s.OC; ++oc) packed[k / 2 * padded_oc + oc] |= Cell{row[oc].bits} << (k % 2 * 16);
  };
  for (int64_t tap = 0; tap < s.KH * s.KW; ++tap) {
    put(4 * (tap % s.KW) + tap / s.KW, weight.data<BFloat16>() + tap * s.OC);
  }
  if (bias.defined()) put(3, bias.data<BFloat16>());
}

// The sums of a row: (positions, padded_oc).
template <class Tiles>
void correlate_row(const Image& image, const Cell* row, const Cell* weights, float* sums) {
  const int64_t sums_row = image.padded_oc * 4;
  for (int64_t oc = 0; oc < image.padded_oc; oc += block) {
    Tiles::template load<6>(weights + oc, sums_row);
    Tiles::template load<7>(weights + oc + 16, sums_row);
    for (int64_t w = 0; w < image.positions; w += block) {
      float* to = sums + w * image.padded_oc + oc;
      Block<Tiles, 2, 2>::zero_sums();
      Tiles::template load<4>(row + 2 * w, 8);
      Tiles::template multiply<0, 4, 6>();
      Tiles::template multiply<1, 4, 7>();
      Tiles::template load<5>(row + 2 * (w + 16), 8);
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
      Block<Tiles, 2, 2>::store_sums(to, sums_row, 16 * image.padded_oc);
    }
  }
}

template <class Tiles>
void forward(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Image image{s};
  const ForwardMemory m{Parts(workspace), image};
  const int64_t padded_oc = image.padded_oc;
  const bool is_whole = s.OC == padded_oc;
  pack_parameters(s, call.weight, call.bias, padded_oc, m.weights);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* y = call.y.mutable_data<BFloat16>();
  uint8_t* winner = call.winner.mutable_data<uint8_t>();
  parallel(s.N, [&](int64_t n, int thread) {
    BFloat16* plane = m.planes.zeroed(thread);
    Cell* rows = m.rows[thread];
    float *sums = m.sums[thread], *results = m.results[thread];
    uint8_t* winners = m.winners[thread];
    copy_rows(images + n * s.H * s.W, s.H, s.W, plane + s.padding * (image.W + 1), image.W);
    // All rows first: a tile that is loaded right after its row was stored waits for the stores.
    for (int64_t h = 0; h < 2 * image.PH; ++h) {
      interleave_with_ones(&plane[h * image.W].bits, image.W, image.positions + max_columns, rows + h * m.row);
    }
    const Session<Tiles> session;
    for (int64_t ph = 0; ph < image.PH; ++ph) {
      correlate_row<Tiles>(image, rows + 2 * ph * m.row, m.weights, sums);
      correlate_row<Tiles>(image, rows + (2 * ph + 1) * m.row, m.weights, sums + m.below);
      const int64_t to = (n * image.PH + ph) * image.PW * s.OC;
      pool_sums(sums, {image.PW, padded_oc, m.below}, padded_oc, results, is_whole ? winner + to : winners);
      if (is_whole) {
        narrow(results, y + to, m.results.size);
      } else {
        for (int64_t pw = 0; pw < image.PW; ++pw) {
          narrow(results + pw * padded_oc, y + to + pw * s.OC, s.OC);
          std::copy_n(winners + pw * padded_oc, s.OC, winner + to + pw * s.OC);
        }
      }
    }
  });
}

struct BackwardMemory : Parts {
  const Conv2dSizes& s;
  const Image& image;
  const int64_t groups = conv2d_groups(s), rows = image.H * s.KW + tile_rows;  // rows of a block in `shifted`
  Each<float> dweights = each<float>(s.KH * s.KW * image.padded_oc, groups);   // of a group: (taps, padded_oc)
  Each<float> dbiases = each<float>(image.padded_oc, groups);                  // (padded_oc)
  Each<BFloat16> planes = each<BFloat16>(image.stored);                        // of a thread: (stored)
  Each<BFloat16> shifted = each<BFloat16>(image.positions * rows);             // (blocks, rows, 32)
  Each<uint32_t> pairs = each<uint32_t>(image.positions * block);              // (2, positions / 2, 32)
  Each<float> sums = each<float>(2 * tile_rows * image.padded_oc);             // (2, 16, padded_oc)
};

// Row h * KW + kw of a block is the row h of the image from position `block + kw` on.
inline void shift_rows(const Conv2dSizes& s, const Image& image, const BFloat16* plane, int64_t rows,
                       BFloat16* shifted) {
  for (int64_t w = 0; w < image.positions; w += block, shifted += rows * block) {
    BFloat16* to = shifted;
    for (int64_t h = 0; h < image.H; ++h) {
      for (int64_t kw = 0; kw < s.KW; ++kw, to += block) std::copy_n(plane + h * image.W + w + kw, block, to);
    }
  }
}

// sums (2, 16, padded_oc), of the even and the odd rows, += those of one image.
template <class Tiles>
void add_weight_gradient(const Conv2dSizes& s, const Image& image, const BFloat16* shifted, int64_t rows,
                         const BFloat16* dy, const uint8_t* winner, Cell* pairs, float* sums, float* dbias) {
  const int64_t odd = image.positions / 2 * block;  // cells
  for (int64_t oc = 0; oc < image.padded_oc; oc += block) {
    const int64_t channels = std::min(block, s.OC - oc);
    if (channels < block) std::fill_n(pairs, 2 * odd, Cell{0});
    Block<Tiles, 2, 2>::load_sums(sums + oc, image.padded_oc * 4, tile_rows * image.padded_oc);
    for (int64_t ph = 0; ph < image.PH; ++ph) {
      const int64_t from = ph * image.PW * s.OC + oc;
      unpool_pairs(dy + from, winner + from, image.PW, s.OC, channels, pairs, odd, dbias + oc);
      for (int64_t w = 0; w < image.positions; w += block) {
        const BFloat16* a = shifted + (w / block * rows + 2 * ph * s.KW) * block;
        const Cell* b = pairs + w / 2 * block;
        Tiles::template load<4>(a, 64);
        Tiles::template load<6>(b, 128);
        Tiles::template multiply<0, 4, 6>();
        Tiles::template load<7>(b + 16, 128);
        Tiles::template multiply<1, 4, 7>();
        Tiles::template load<5>(a + s.KW * block, 64);
        Tiles::template load<6>(b + odd, 128);
        Tiles::template multiply<2, 5, 6>();
        Tiles::template load<7>(b + odd + 16, 128);
        Tiles::template multiply<3, 5, 7>();
      }
    }
    Block<Tiles, 2, 2>::store_sums(sums + oc, image.padded_oc * 4, tile_rows * image.padded_oc);
  }
}

template <class Tiles>
void backward(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Image image{s};
  const BackwardMemory m{Parts(workspace), s, image};
  const int64_t padded_oc = image.padded_oc, pooled = image.PH * image.PW * s.OC;
  const BFloat16* images = call.x.data<BFloat16>();
  const BFloat16* dy = call.dy.data<BFloat16>();
  const uint8_t* winner = call.winner.data<uint8_t>();

  parallel(m.groups, [&](int64_t group, int thread) {
    BFloat16 *plane = m.planes.zeroed(thread), *shifted = m.shifted.zeroed(thread);
    Cell* pairs = m.pairs.zeroed(thread);
    float *sums = m.sums.zeroed(thread), *dbias = m.dbiases.zeroed(group);
    {
      const Session<Tiles> session;
      for (int64_t n = group * s.N / m.groups; n < (group + 1) * s.N / m.groups; ++n) {
        copy_rows(images + n * s.H * s.W, s.H, s.W, plane + s.padding * (image.W + 1), image.W);
        shift_rows(s, image, plane, m.rows, shifted);
        add_weight_gradient<Tiles>(s, image, shifted, m.rows, dy + n * pooled, winner + n * pooled, pairs, sums, dbias);
      }
    }
    float* dweight = m.dweights[group];
    for (int64_t i = 0; i < m.dweights.size; ++i) dweight[i] = sums[i] + sums[tile_rows * padded_oc + i];
  });

  add_groups(s, m.dweights, call.accumulate, call.dweight, 1, [&](int64_t k) { return k * padded_oc; });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

}  // namespace hs::amx::one_channel
