// conv2d for bf16 with AVX-512 BF16, backward for a dy with few zeros: the tiles of kernels/conv2d/dense_backward.h.
#include "kernels/conv2d/dense_backward.h"

#if defined(__x86_64__)
#include "kernels/conv2d/avx512_bf16.h"

namespace hs {
namespace {

static_assert(largest_tile == max_tile_pixels && panel_channels == max_panel);

void run_dx(int vectors, const DxTile<BFloat16>& dx) {
  Tile tile{{}, dx.weight, no_bias, dx.KH, dx.run / 2, dx.row};
  std::ranges::copy(dx.fields, tile.fields);
  tiles[vectors](tile, dx.outputs[0]);
}

struct DweightTiles {
  static constexpr int taps = 3, channels = 8;  // their sums fit the registers, beside taps and an element of dy
  template <int vectors, int count>
  HS_TARGET_AVX512_BF16 static void run(const DweightTile& t) {
    __m512 sum[count][vectors];
    for (int c = 0; c < count; ++c) {
      for (int v = 0; v < vectors; ++v) sum[c][v] = _mm512_loadu_ps(t.dweight + c * t.field + v * 16);
    }
    const Cell* dy = t.dy;
    for (int64_t row = 0; row < t.rows; ++row) {
      const Cell* x = t.x + row * t.x_row;
      for (int64_t pair = 0; pair < t.groups; ++pair, dy += t.dy_group, x += t.x_group) {
        __m512i taps[vectors];
        for (int v = 0; v < vectors; ++v) taps[v] = _mm512_loadu_si512(x + v * 16);
        for (int c = 0; c < count; ++c) {
          const __m512i d = _mm512_set1_epi32(static_cast<int>(dy[c]));
          for (int v = 0; v < vectors; ++v) sum[c][v] = _mm512_dpbf16_ps(sum[c][v], (__m512bh)taps[v], (__m512bh)d);
        }
      }
    }
    for (int c = 0; c < count; ++c) {
      for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(t.dweight + c * t.field + v * 16, sum[c][v]);
    }
  }
};

HS_TARGET_AVX512 const Cell* to_cells(const BFloat16* image, int64_t distance, int64_t count, Cell* cells) {
  for (int64_t i = 0; i < count; ++i) cells[i] = image[i].bits | static_cast<Cell>(image[i + distance].bits) << 16;
  return cells;
}

HS_TARGET_AVX512_BF16 void add_dbias(const Cell* dy, int64_t count, int64_t row, int64_t channels, float* dbias) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  for (int64_t c = 0; c < channels; c += 16) {
    __m512 sum = _mm512_loadu_ps(dbias + c);
    for (int64_t i = 0; i < count; ++i) {
      sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(dy + i * row + c), (__m512bh)ones);
    }
    _mm512_storeu_ps(dbias + c, sum);
  }
}

constexpr DenseTiles<BFloat16> dense_tiles = {.lanes = 16,
                                              .panel = panel_channels,
                                              .tile_pixels = tile_pixels,
                                              .run_dx = run_dx,
                                              .pack = pack_weights,
                                              .channels = DweightTiles::channels,
                                              .taps = DweightTiles::taps,
                                              .run_dweight = run_dweight<DweightTiles>,
                                              .to_cells = to_cells,
                                              .add_dbias = add_dbias};

}  // namespace

void dense_backward_bf16(const Conv2dBackward& call, Tensor& workspace) {
  dense_backward_from<BFloat16>(call, workspace, dense_tiles);
}

int64_t dense_workspace_bf16(const Conv2dBackward& call) {
  return DenseMemory<BFloat16>{Parts(), call.sizes, dense_tiles.lanes}.bytes();
}

}  // namespace hs

#endif
