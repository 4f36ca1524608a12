// conv2d in f32 (f16 and bf16 are widened), backward for a dy with few zeros: the tiles of
// kernels/conv2d/dense_backward.h.
#include "kernels/conv2d/dense_backward.h"

#include <limits>

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/conv2d/direct_tile.h"

namespace hs::HS_ISA {
namespace {

static_assert(max_pixels == max_tile_pixels && max_vectors * lanes <= max_panel);

void run_dx(int vectors, const DxTile<float>& dx) {
  TileArguments tile{
      {},     {},    reinterpret_cast<const float*>(dx.weight), no_bias, -std::numeric_limits<float>::infinity(), dx.KH,
      dx.run, dx.row};
  std::ranges::copy(dx.fields, tile.fields);
  std::ranges::copy(dx.outputs, tile.outputs);
  forward_tiles[vectors](tile);
}

void pack_for_dx(const Conv2dSizes& s, int64_t padded_c, const float* weight, Cell* packed) {
  pack_weights(s, weight, padded_c, max_vectors * lanes, reinterpret_cast<float*>(packed));
}

struct DweightTiles {  // their sums fit the registers, beside taps and an element of dy
  static constexpr int taps = registers == 32 ? 3 : 2, channels = registers == 32 ? 8 : 6;
  template <int vectors, int count>
  static void run(const DweightTile& t) {
    Vec sum[count][vectors];
    for (int c = 0; c < count; ++c) {
      for (int v = 0; v < vectors; ++v) sum[c][v] = load(t.dweight + c * t.field + v * lanes);
    }
    const float* dy = reinterpret_cast<const float*>(t.dy);
    for (int64_t row = 0; row < t.rows; ++row) {
      const float* x = reinterpret_cast<const float*>(t.x + row * t.x_row);
      for (int64_t pixel = 0; pixel < t.groups; ++pixel, dy += t.dy_group, x += t.x_group) {
        Vec taps[vectors];
        for (int v = 0; v < vectors; ++v) taps[v] = load(x + v * lanes);
        for (int c = 0; c < count; ++c) {
          const Vec d = broadcast(dy[c]);
          for (int v = 0; v < vectors; ++v) sum[c][v] = fma(d, taps[v], sum[c][v]);
        }
      }
    }
    for (int c = 0; c < count; ++c) {
      for (int v = 0; v < vectors; ++v) store(t.dweight + c * t.field + v * lanes, sum[c][v]);
    }
  }
};

void add_dbias(const Cell* cells, int64_t count, int64_t row, int64_t channels, float* dbias) {
  const float* dy = reinterpret_cast<const float*>(cells);
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    Vec sum = load(dbias + c);
    for (int64_t i = 0; i < count; ++i) sum += load(dy + i * row + c);
    store(dbias + c, sum);
  }
  for (; c < channels; ++c) {
    for (int64_t i = 0; i < count; ++i) dbias[c] += dy[i * row + c];
  }
}

constexpr DenseTiles<float> dense_tiles = {
    .lanes = lanes,
    .panel = max_vectors * lanes,
    .tile_pixels = tile_pixels,
    .run_dx = run_dx,
    .pack = pack_for_dx,
    .channels = DweightTiles::channels,
    .taps = DweightTiles::taps,
    .run_dweight = run_dweight<DweightTiles>,
    .to_cells = [](const float* image, int64_t, int64_t, Cell*) { return reinterpret_cast<const Cell*>(image); },
    .add_dbias = add_dbias};

void backward_of(const Conv2dBackward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { dense_backward_from<T>(call, workspace, dense_tiles); });
}

int64_t workspace_of(const Conv2dBackward& call) { return DenseMemory<float>{Parts(), call.sizes, lanes}.bytes(); }

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/dense_backward.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

void dense_backward(const Conv2dBackward& call, Tensor& workspace) { HS_FOR_THIS_CPU(backward_of)(call, workspace); }

int64_t dense_workspace(const Conv2dBackward& call) { return HS_FOR_THIS_CPU(workspace_of)(call); }

// Lists take as long as the tiles if about 30 % of dy is not zero: with 32 and 64 channels, in f32 and bf16.
bool has_few_zeros(const Conv2dBackward& call) {
  constexpr int64_t looks = 512;
  const int64_t size = call.dy.size(), step = std::max<int64_t>(1, size / looks) | 1;  // odd: not always one channel
  int64_t seen = 0, zeros = 0;
  for_f32_or_16_bits(call.dy.dtype(), [&]<class T>() {
    const T* dy = call.dy.data<T>();
    const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    for (int64_t i = 0; i < size; i += step, ++seen) zeros += to_computing(dy[i]) == 0 || (y && is_closed(y[i]));
  });
  return 10 * zeros < 7 * seen;
}

}  // namespace hs

#endif
