// conv2d in f32 (f16 and bf16 are widened), backward for a dy with few zeros: the tiles of
// kernels/conv2d/dense_backward.h.
#include "kernels/conv2d/dense_backward.h"

#include <limits>

#ifdef HS_ISA
#include "kernels/conv2d/direct_tile.h"

namespace hs::HS_ISA {
namespace {

static_assert(most_pixels == most_tile_pixels && max_vectors * lanes <= most_panel);

void run_dx(int vectors, const DxTile<float>& dx) {
  TileArguments tile{
      {},     {},    reinterpret_cast<const float*>(dx.weight), no_bias, -std::numeric_limits<float>::infinity(), dx.KH,
      dx.run, dx.row};
  std::ranges::copy(dx.fields, tile.fields);
  for (int i = 0; i < tile_pixels(vectors); ++i) tile.outputs[i] = dx.to + i * vectors * lanes;
  forward_tiles[vectors](tile);
}

void pack_for_dx(const Conv2dSizes& s, int64_t padded_c, const float* weight, Cell* packed) {
  pack_weights(s, weight, padded_c, reinterpret_cast<float*>(packed));
}

template <int taps, int vectors>
void run_dweight(const DweightTile& t) {
  Vec sum[taps][vectors];
  for (int k = 0; k < taps; ++k) {
    for (int v = 0; v < vectors; ++v) sum[k][v] = load(t.dweight + k * t.dweight_row + v * lanes);
  }
  const float* dy = reinterpret_cast<const float*>(t.dy);
  for (int64_t row = 0; row < t.rows; ++row) {
    const float* x = reinterpret_cast<const float*>(t.x + row * t.x_row);
    for (int64_t pixel = 0; pixel < t.groups; ++pixel, dy += t.dy_group, x += t.x_group) {
      Vec d[vectors];
      for (int v = 0; v < vectors; ++v) d[v] = load(dy + v * lanes);
      for (int k = 0; k < taps; ++k) {
        const Vec tap = broadcast(x[k]);
        for (int v = 0; v < vectors; ++v) sum[k][v] = fma(tap, d[v], sum[k][v]);
      }
    }
  }
  for (int k = 0; k < taps; ++k) {
    for (int v = 0; v < vectors; ++v) store(t.dweight + k * t.dweight_row + v * lanes, sum[k][v]);
  }
}

void add_dbias(const Cell* dy, int64_t count, int64_t distance, float* dbias) {
  Vec sum = load(dbias);
  for (int64_t i = 0; i < count; ++i) sum += load(reinterpret_cast<const float*>(dy + i * distance));
  store(dbias, sum);
}

// The sums fit the registers, beside dy and a tap. GCC unrolls no loop of more than 16.
constexpr int most_taps = registers == 32 ? 16 : 12, most_taps_by_two = registers == 32 ? 12 : 6;

constexpr DenseTiles<float> dense_tiles = {
    .lanes = lanes,
    .panel = max_vectors * lanes,
    .tile_pixels = tile_pixels,
    .run_dx = run_dx,
    .pack = pack_for_dx,
    .dweight = {{most_taps, {nullptr, run_dweight<most_taps, 1>, nullptr}},
                {most_taps_by_two, {nullptr, run_dweight<most_taps_by_two, 1>, run_dweight<most_taps_by_two, 2>}},
                {4, {nullptr, run_dweight<4, 1>, run_dweight<4, 2>}},
                {1, {nullptr, run_dweight<1, 1>, run_dweight<1, 2>}}},
    .to_cells = [](const float* image, int64_t, int64_t, Cell*) { return reinterpret_cast<const Cell*>(image); },
    .add_dbias = add_dbias};

void backward_of(const Conv2dBackward& call, Tensor& workspace) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) dense_backward_from<T>(call, workspace, dense_tiles);
  });
}

int64_t workspace_of(const Conv2dBackward& call) { return DenseLayout<float>(call.sizes, lanes).size; }

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
  for_float_type(call.dy.dtype(), [&]<class T>() {
    const T* dy = call.dy.data<T>();
    const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    for (int64_t i = 0; i < size; i += step, ++seen) zeros += to_computing(dy[i]) == 0 || (y && is_closed(y[i]));
  });
  return 10 * zeros < 7 * seen;
}

}  // namespace hs

#endif
