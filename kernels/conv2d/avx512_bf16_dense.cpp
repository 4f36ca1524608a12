// conv2d for bf16 with AVX-512 BF16, backward for a dy with few zeros: the tiles of kernels/conv2d/dense_backward.h.
#include "kernels/conv2d/dense_backward.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

static_assert(largest_tile == most_tile_pixels && panel_channels == most_panel);

void run_dx(int vectors, const DxTile<BFloat16>& dx) {
  Tile tile{{}, dx.weight, no_bias, dx.KH, dx.run / 2, dx.row};
  std::ranges::copy(dx.fields, tile.fields);
  tiles[vectors](tile, dx.to);
}

template <int taps, int vectors>
HS_TARGET_AVX512_BF16 void run_dweight(const DweightTile& t) {
  __m512 sum[taps][vectors];
  for (int k = 0; k < taps; ++k) {
    for (int v = 0; v < vectors; ++v) sum[k][v] = _mm512_loadu_ps(t.dweight + k * t.dweight_row + v * 16);
  }
  const Cell* dy = t.dy;
  for (int64_t row = 0; row < t.rows; ++row) {
    const Cell* x = t.x + row * t.x_row;
    for (int64_t group = 0; group < t.groups; ++group, dy += t.dy_group, x += t.x_group) {
      __m512i d[vectors];
      for (int v = 0; v < vectors; ++v) d[v] = _mm512_loadu_si512(dy + v * 16);
      for (int k = 0; k < taps; ++k) {
        const __m512i tap = _mm512_set1_epi32(static_cast<int>(x[k]));
        for (int v = 0; v < vectors; ++v) sum[k][v] = _mm512_dpbf16_ps(sum[k][v], (__m512bh)d[v], (__m512bh)tap);
      }
    }
  }
  for (int k = 0; k < taps; ++k) {
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(t.dweight + k * t.dweight_row + v * 16, sum[k][v]);
  }
}

HS_TARGET_AVX512 const Cell* to_cells(const BFloat16* image, int64_t distance, int64_t count, Cell* cells) {
  for (int64_t i = 0; i < count; ++i) cells[i] = image[i].bits | static_cast<Cell>(image[i + distance].bits) << 16;
  return cells;
}

HS_TARGET_AVX512_BF16 void add_dbias(const Cell* dy, int64_t count, int64_t distance, float* dbias) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  __m512 sum = _mm512_loadu_ps(dbias);
  for (int64_t i = 0; i < count; ++i) {
    sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(dy + i * distance), (__m512bh)ones);
  }
  _mm512_storeu_ps(dbias, sum);
}

// GCC unrolls no loop of more than 16.
constexpr DenseTiles<BFloat16> dense_tiles = {.lanes = 16,
                                              .panel = panel_channels,
                                              .tile_pixels = tile_pixels,
                                              .run_dx = run_dx,
                                              .pack = pack_weights,
                                              .dweight = {{16, {nullptr, run_dweight<16, 1>, nullptr}},
                                                          {12, {nullptr, run_dweight<12, 1>, run_dweight<12, 2>}},
                                                          {4, {nullptr, run_dweight<4, 1>, run_dweight<4, 2>}},
                                                          {1, {nullptr, run_dweight<1, 1>, run_dweight<1, 2>}}},
                                              .to_cells = to_cells,
                                              .add_dbias = add_dbias};

}  // namespace

void dense_backward_bf16(const Conv2dBackward& call, Tensor& workspace) {
  dense_backward_from<BFloat16>(call, workspace, dense_tiles);
}

int64_t dense_workspace_bf16(const Conv2dBackward& call) {
  return DenseLayout<BFloat16>(call.sizes, dense_tiles.lanes).size;
}

}  // namespace hs

#endif
