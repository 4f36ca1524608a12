// conv2d_pool_relu forward in 16 bits as one kernel on tensor cores (implicit_gemm.cuh says how the convolution becomes
// a product without a column matrix). A block computes a band of windows of one image, 64 output channels; a warp
// 8 windows of it. The rows of its two 16-row products are chosen so that the four pixels of a window meet in one lane:
//
//      first product                      second product             a lane's registers, for one channel
//      row g     : window g, pixel 0      row g     : pixel 2         sum[0][0]   sum[0][2]
//      row g + 8 : window g, pixel 1      row g + 8 : pixel 3         sum[1][0]   sum[1][2]
//
// so bias, maximum and ReLU need no other lane; dropout follows when 8 channels, a group of its random numbers, are
// stored at once. Only y and `winner` reach global memory. Pixels of one place in neighbouring windows are two columns
// apart: the tile keeps the columns of even index before those of odd index, and then they are neighbours without bank
// conflicts, if the 8 windows are of one row. A window below lies 2 row_pixels further: with 12 windows in a row (52
// pixels) there are none either; with 5 (24 pixels) windows 5 to 7 meet the banks of 0 to 2.
// The weights of the next tap are copied while one is multiplied. Next: mma_backward.cu.
#include <cuda_runtime.h>

#include "kernels/conv2d_pool_relu/implicit_gemm.cuh"

namespace hs {
namespace {

using namespace cuda;

template <class T>
struct ForwardProblem {
  ConvSizes s;
  ImageTile tile;
  Divisor window_columns;
  int band, bands;  // rows of windows, and how many bands an image has
  const T *x, *weight, *bias;
  T* y;
  uint8_t* winner;
  DropoutMasker dropped;
};

// The position of 8 channels of row c in a tile of weights, (C, 64). The chunks of a row are permuted: no bank
// conflicts.
__device__ __forceinline__ int weight_place(int c, int part) { return c * tile_oc + (part ^ c % 8) * chunk; }

template <class T>
__global__ void __launch_bounds__(max_warps * 32) pooled_mma_forward_kernel(Previous previous, ForwardProblem<T> p) {
  previous.wait();
  const ConvSizes& s = p.s;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, taps = s.KH * s.KW, oc0 = blockIdx.y * tile_oc;
  const int n = blockIdx.x / p.bands, ph0 = blockIdx.x % p.bands * p.band;
  const int windows = min(p.band, s.PH - ph0) * s.PW;
  const auto image = dynamic_shared<T>();
  const auto weights = image + p.tile.rows * p.tile.row_pixels * p.tile.pitch;

  const auto start_weights = [&](int tap) {
    const auto to = weights + tap % 2 * s.C * tile_oc;
    for (int i = threadIdx.x; tap < taps && i < s.C * (tile_oc / chunk); i += blockDim.x) {
      const int c = i / (tile_oc / chunk), part = i % (tile_oc / chunk), oc = oc0 + part * chunk;
      const bool exists = oc < s.OC;
      cp_async_16(to + weight_place(c, part), exists ? p.weight + (tap * s.C + c) * s.OC + oc : p.weight,
                  exists ? 16 : 0);
    }
    cp_async_commit();
  };
  copy_image<T>(image, p.tile, s, p.x + int64_t{n} * s.H * s.W * s.C, 2 * ph0 - s.padding, -s.padding, 0);
  start_weights(0);

  // The row for which this lane gives addresses: pixel 0 or 1 of a window, first or second half of the depth.
  const auto [window_row, window_column] = p.window_columns.divide(min(warp * 8 + lane % 8, windows - 1));
  const int pixel = lane / 8 % 2, depth = lane / 16 * chunk, row_size = p.tile.row_pixels * p.tile.pitch;
  float sum[tile_oc / 8][2][4] = {};  // [8 channels][pixels 0 and 1, or 2 and 3][of each of them two channels]
  int tap = 0;
  for (int kh = 0; kh < s.KH; ++kh) {
    for (int kw = 0; kw < s.KW; ++kw, ++tap) {
      cp_async_wait<0>();  // this thread's share of the image and of this tap has arrived,
      __syncthreads();     // and those of the others; no thread still reads the tap before
      start_weights(tap + 1);
      const int column = p.tile.place(pixel + kw) + static_cast<int>(window_column);
      const auto a_row = image + ((2 * static_cast<int>(window_row) + kh) * row_size + column * p.tile.pitch + depth);
      const auto b_tile = weights + tap % 2 * s.C * tile_oc;
      for (int c = 0; c < s.C; c += mma_depth) {
        uint32_t a[2][4];
        ldmatrix_x4(a[0], a_row + c);               // pixels 0 and 1 of eight windows
        ldmatrix_x4(a[1], a_row + (c + row_size));  // pixels 2 and 3, a row of the image below
#pragma unroll
        for (int j = 0; j < tile_oc / 16; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, b_tile + weight_place(c + lane % 16, 2 * j + lane / 16));
          multiply_16_columns<T, 2>(sum[2 * j], sum[2 * j + 1], a, b);
        }
      }
    }
  }

  // Bias, pooling and ReLU in registers; then through shared memory, so that 16 bytes are stored at once.
  __syncthreads();  // the tiles are read no longer
  const auto y = image + warp * 8 * y_pitch;
  const auto winner = shared_cast<uint16_t>(image + blockDim.x / 32 * 8 * y_pitch) + warp * 8 * winner_pitch;
#pragma unroll
  for (int j = 0; j < tile_oc / 8; ++j) {
    const int at = j * 8 + lane % 4 * 2;
    Pack<T, 2> values;
    int places = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float b = p.bias && oc0 + at < s.OC ? to_f32(p.bias[oc0 + at + i]) : 0.0f;
      const float pixels[4] = {sum[j][0][i] + b, sum[j][0][2 + i] + b, sum[j][1][i] + b, sum[j][1][2 + i] + b};
      const Pooled best = pool_and_relu(pixels);
      values.value[i] = from_f32<T>(best.value);
      places |= best.winner << 8 * i;
    }
    store_vector(y + (lane / 4 * y_pitch + at), values);
    winner[lane / 4 * winner_pitch + at / 2] = static_cast<uint16_t>(places);
  }
  __syncwarp();
  const int64_t first = (int64_t{n} * s.PH + ph0) * s.PW;
#pragma unroll
  for (int i = lane; i < 8 * (tile_oc / chunk); i += 32) {
    const int window = i / (tile_oc / chunk), oc = i % (tile_oc / chunk) * chunk;
    if (warp * 8 + window >= windows || oc0 + oc >= s.OC) continue;
    const int64_t at = (first + warp * 8 + window) * s.OC + oc0 + oc;
    auto values = load_vector<Pack<T, chunk>>(y + (window * y_pitch + oc));
    if (p.dropped.drops()) {
      const Random4 random = p.dropped.block(at / dropout_group);
#pragma unroll
      for (int j = 0; j < chunk; ++j) {
        values.value[j] = p.dropped.masked(random, j, values.value[j]);
        if (p.dropped.keeps(random, j)) continue;
        const int pair = window * winner_pitch + (oc + j) / 2, shift = j % 2 * 8;  // no gradient passes here
        const uint16_t both = winner[pair];
        winner[pair] = static_cast<uint16_t>((both & 0xff00 >> shift) | closed << shift);
      }
    }
    store_vector(p.y + at, values);
  }
  __syncwarp();
  const int window = lane / 4, oc = lane % 4 * 16;
  if (warp * 8 + window < windows && oc0 + oc < s.OC) {
    store_vector(p.winner + (first + warp * 8 + window) * s.OC + oc0 + oc,
                 load_vector<Pack<uint8_t, 16>>(winner + (window * winner_pitch + oc / 2)));
  }
}

void forward_mma(const Conv2dPoolReluForward& call) {
  const Conv2dSizes& s = call.sizes;
  const Bands bands = forward_bands(s);
  const auto columns = s.OW / 2 * 2 + s.KW - 1, half = (columns + 1) / 2;
  const auto warps = (bands.rows * (s.OW / 2) + 7) / 8;
  for_16_bits(call.x.dtype(), [&]<class T>() {
    const ForwardProblem<T> problem = {.s = conv_sizes(s),
                                       .tile = {.chunks = Divisor(s.C / chunk),
                                                .columns = Divisor(columns),
                                                .rows = static_cast<int>(2 * bands.rows + s.KH - 1),
                                                .row_pixels = static_cast<int>(2 * half),
                                                .pitch = static_cast<int>(pitch_of(s.C)),
                                                .odd = static_cast<int>(half)},
                                       .window_columns = Divisor(s.OW / 2),
                                       .band = static_cast<int>(bands.rows),
                                       .bands = static_cast<int>(bands.count),
                                       .x = call.x.data<T>(),
                                       .weight = call.weight.data<T>(),
                                       .bias = call.bias.defined() ? call.bias.data<T>() : nullptr,
                                       .y = call.y.mutable_data<T>(),
                                       .winner = call.winner.mutable_data<uint8_t>(),
                                       .dropped = DropoutMasker(call.dropped ? *call.dropped : DropoutRule())};
    const dim3 grid(static_cast<unsigned>(s.N * bands.count), static_cast<unsigned>((s.OC + tile_oc - 1) / tile_oc));
    launch(pooled_mma_forward_kernel<T>, grid, static_cast<unsigned>(warps * 32), static_cast<size_t>(bands.bytes),
           compute_stream(), problem);
  });
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "mma",
                {.run = forward_mma, .supported = mma_supports<Conv2dPoolReluForward>, .rank = 20});

}  // namespace
}  // namespace hs
