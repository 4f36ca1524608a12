// conv2d_pool_relu backward in 16 bits on tensor cores. The gradient of the convolution, four times the
// size of dy, is rebuilt in shared memory from (dy, winner) and never stored:
//
//    dy, winner of a window      dense          dx: a block computes a band of rows of one image, 32 channels. A is
//    + - - - - - - - - - - +    + - - - +       `dense` with the tap as an offset, B the weights of the tap, (OC, 32).
//    | 0.7, pixel 2        | -> | 0    0 |
//    + - - - - - - - - - - +    | 0.7  0 |      dweight: a warp is a tap. It keeps the tap's 32 x 64 sums in registers
//                               + - - - +       while its block visits its images band by band: A is x with the tap as
//                                               an offset, transposed, B is `dense`; both are read by all warps.
//
// Neither needs the other's result, so a small batch, which has too few blocks of one kind to fill a GPU, has both in
// one launch. The blocks of dweight share the images equally, and add_partials (kernels/cuda/partials.cuh) adds what
// they have summed, the bias gradient with it. No atomics: the order of all additions depends on the shapes alone. Read
// first: mma.cu.
#include <cuda_runtime.h>

#include "kernels/conv2d_pool_relu/implicit_gemm.cuh"
#include "kernels/cuda/partials.cuh"

namespace hs {
namespace {

using namespace cuda;

template <class T>
struct InputProblem {
  ConvSizes s;
  Divisor W, columns, window_columns, chunks;  // of x; of `dense`, in pixels and windows; of a pixel of `dense`
  int band, bands, pitch, warps;
  int blocks;  // of a tile of channels: N * bands
  float dy_factor;
  const T* weight;
  const T* dy;
  const uint8_t* winner;
  T* dx;
};

// Threads beyond p.warps help to copy.
template <class T>
__device__ __forceinline__ void input_gradient_block(const InputProblem<T>& p, int block) {
  const ConvSizes& s = p.s;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, taps = s.KH * s.KW, c0 = block / p.blocks * tile_c;
  const int n = block % p.blocks / p.bands, h0 = block % p.blocks % p.bands * p.band;
  const int pixels = min(p.band, s.H - h0) * s.W, columns = p.columns.divisor();
  const auto dense = dynamic_shared<T>();
  const auto weights = dense + (p.band + s.KH - 1) * columns * p.pitch;

  // The weights of a tap, (32, OC): B is their transpose.
  const auto start_weights = [&](int tap) {
    const auto to = weights + tap % 2 * tile_c * p.pitch;
    const uint32_t count = tap < taps ? tile_c * p.chunks.divisor() : 0;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const auto [c, part] = p.chunks.divide(i);
      const bool exists = c0 + static_cast<int>(c) < s.C;
      cp_async_16(to + static_cast<int>(c * p.pitch + part * chunk),
                  exists ? p.weight + (tap * s.C + c0 + c) * s.OC + part * chunk : p.weight, exists ? 16 : 0);
    }
    cp_async_commit();
  };
  start_weights(0);
  const int64_t first_window = int64_t{n} * s.PH * s.PW * s.OC;
  // The corner of `dense` in the image may lie within a window, and outside.
  const int rows = p.band + s.KH - 1, corner_h = h0 + s.padding - (s.KH - 1), corner_w = s.padding - (s.KW - 1);
  const uint32_t count = (rows + (corner_h & 1) + 1) / 2 * p.window_columns.divisor() * p.chunks.divisor();
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const auto [window, part] = p.chunks.divide(i);
    const auto [window_row, window_column] = p.window_columns.divide(window);
    const int ph = (corner_h >> 1) + static_cast<int>(window_row), oc = static_cast<int>(part) * chunk;
    const int pw = (corner_w >> 1) + static_cast<int>(window_column);
    store_window(s, p.dy + first_window, p.winner + first_window, p.dy_factor, ph, pw, oc,
                 [&](int place, Pack<uint32_t, 4> values) {
                   const int row = 2 * ph - corner_h + place / 2, column = 2 * pw - corner_w + place % 2;
                   const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
                   const int at = inside ? (row * columns + column) * p.pitch + oc : -1;
                   if (at >= 0) store_vector(dense + at, values);
                 });
  }

  // Where `dense` has what the last tap multiplies into the pixel of this lane's row; other taps lie behind.
  int at[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto [h, w] = p.W.divide(min(warp * 32 + i * 16 + lane % 16, pixels - 1));
    at[i] = static_cast<int>(h * columns + w) * p.pitch + lane / 16 * chunk;
  }
  float sum[tile_c / 8][2][4] = {};
  for (int tap = 0; tap < taps; ++tap) {
    cp_async_wait<0>();
    __syncthreads();  // `dense` and this tap are complete, and no thread still reads the tap before
    start_weights(tap + 1);
    if (warp >= p.warps) continue;
    const int kh = tap / s.KW, kw = tap % s.KW;
    const auto a_tile = dense + ((s.KH - 1 - kh) * columns + s.KW - 1 - kw) * p.pitch;
    const auto b_row = weights + (tap % 2 * tile_c + lane / 16 * 8 + lane % 8) * p.pitch + lane / 8 % 2 * chunk;
    for (int oc = 0; oc < s.OC; oc += mma_depth) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) ldmatrix_x4(a[i], a_tile + (at[i] + oc));
#pragma unroll
      for (int j = 0; j < tile_c / 16; ++j) {
        uint32_t b[4];
        ldmatrix_x4(b, b_row + (j * 16 * p.pitch + oc));
        multiply_16_columns<T, 2>(sum[2 * j], sum[2 * j + 1], a, b);
      }
    }
  }

  __syncthreads();  // the tiles are read no longer
  if (warp >= p.warps) return;
  const auto results = dense + warp * 32 * dx_pitch;  // (32, 32), so that 16 bytes are stored at once
#pragma unroll
  for (int j = 0; j < tile_c / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows in steps of 8
      const float* two = sum[j][i / 2] + i % 2 * 2;
      store_vector(results + ((i * 8 + lane / 4) * dx_pitch + j * 8 + lane % 4 * 2),
                   Pack<T, 2>{{from_f32<T>(two[0]), from_f32<T>(two[1])}});
    }
  }
  __syncwarp();
  T* to = p.dx + (int64_t{n} * s.H + h0) * s.W * s.C;
#pragma unroll
  for (int i = lane; i < 32 * (tile_c / chunk); i += 32) {
    const int row = i / (tile_c / chunk), c = i % (tile_c / chunk) * chunk, pixel = warp * 32 + row;
    if (pixel < pixels && c0 + c < s.C) {
      store_vector(to + pixel * s.C + c0 + c, load_vector<Pack<T, chunk>>(results + (row * dx_pitch + c)));
    }
  }
}

// What nvcc limits the registers by: two blocks of nine taps fit on a multiprocessor, so one multiplies while the other
// copies.
constexpr int weight_threads = 2 * 9 * 32;
static_assert(weight_threads >= max_taps * 32);

template <class T>
struct WeightProblem {
  ConvSizes s;
  ImageTile tile;
  Divisor columns;  // of `dense`, which has only pixels of windows
  int band, dense_pixels;
  int N, images;  // in total, and per block
  int groups, c_tiles;
  float dy_factor;
  const T* x;
  const T* dy;
  const uint8_t* winner;
  float* partials;  // (groups, K + 1, OC)
};

// A warp has a tap, and the bias gradient of 8 channels, a row of ones times `dense`; so warps are as many as taps, but
// at least as many as eights of channels.
template <class T>
__device__ __forceinline__ void weight_gradient_block(const WeightProblem<T>& p, int block) {
  constexpr int parts = tile_oc / chunk;
  const ConvSizes& s = p.s;
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = block % p.groups, c_tile = block / p.groups % p.c_tiles;
  const int c0 = c_tile * tile_c, oc0 = block / p.groups / p.c_tiles * tile_oc;
  const int taps = s.KH * s.KW, tap = min(warp, taps - 1);
  const auto image = dynamic_shared<T>(), dense = image + p.tile.rows * p.tile.row_pixels * p.tile.pitch;
  const int offset = (tap / s.KW * p.tile.row_pixels + tap % s.KW) * p.tile.pitch + lane / 8 % 2 * chunk;
  const int b_place = chunk_place<parts>(lane % 16, lane / 16 ^ warp % parts);

  const int last = 2 * p.band * static_cast<int>(p.columns.divisor()) - 1;                  // pixel of `dense`
  for (int i = (last + 1) * parts + thread; i < p.dense_pixels * parts; i += blockDim.x) {  // others fill up a product
    store_vector(dense + chunk_place<parts>(i / parts, i % parts), Pack<T, chunk>{});
  }

  const uint32_t one = round_two<Native<T>>(1.0f, 1.0f), ones[4] = {one, one, one, one};
  float sum[tile_oc / 8][2][4] = {}, bias_sum[4] = {};
  const int end = min((group + 1) * p.images, p.N);
  for (int n = group * p.images; n < end; ++n) {
    const T* dy = p.dy + int64_t{n} * (s.PH * s.PW * s.OC);
    const uint8_t* winner = p.winner + int64_t{n} * (s.PH * s.PW * s.OC);
    for (int ph0 = 0; ph0 < s.PH; ph0 += p.band) {
      __syncthreads();  // the tiles of the band before are read no longer
      copy_image<T>(image, p.tile, s, p.x + int64_t{n} * (s.H * s.W * s.C), 2 * ph0 - s.padding, -s.padding, c0);
      cp_async_commit();
      const uint32_t count = p.band * s.PW * parts, columns = p.columns.divisor();
      for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        const auto [row, column] = p.columns.divide(i / parts * 2);
        const int corner = static_cast<int>(2 * row * columns + column), part = static_cast<int>(i % parts);
        store_window(s, dy, winner, p.dy_factor, ph0 + static_cast<int>(row), static_cast<int>(column / 2),
                     oc0 + part * chunk, [&](int place, Pack<uint32_t, 4> values) {
                       const int pixel = corner + place / 2 * static_cast<int>(columns) + place % 2;
                       store_vector(dense + chunk_place<parts>(pixel, part), values);
                     });
      }
      cp_async_wait<0>();
      __syncthreads();
#pragma unroll 1
      for (int k = 0; k < p.dense_pixels; k += mma_depth) {
        const auto [row, column] = p.columns.divide(min(k + lane / 16 * 8 + lane % 8, last));
        const auto a_row = image + (static_cast<int>(row * p.tile.row_pixels + column) * p.tile.pitch + offset);
        uint32_t a[2][4];
        ldmatrix_x4_trans(a[0], a_row);
        ldmatrix_x4_trans(a[1], a_row + 16);
#pragma unroll
        for (int j = 0; j < tile_oc / 16; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, dense + (k * tile_oc + (b_place ^ 2 * j * chunk)));
          multiply_16_columns<T, 2>(sum[2 * j], sum[2 * j + 1], a, b);
          if (j > 0) continue;  // a warp's own channels come first
          const uint32_t own[2] = {b[0], b[1]};
          mma_m16n8k16<Native<T>>(bias_sum, ones, own, bias_sum);
        }
      }
    }
  }

  float* to = p.partials + int64_t{group} * (taps * s.C + 1) * s.OC + oc0;
#pragma unroll
  for (int j = 0; j < tile_oc / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows in steps of 8
      const int c = c0 + i * 8 + lane / 4, oc = (j ^ warp % parts) * 8 + lane % 4 * 2;
      const float* two = sum[j][i / 2] + i % 2 * 2;
      if (warp < taps && c < s.C && oc0 + oc < s.OC) {
        store_vector(to + int64_t{tap * s.C + c} * s.OC + oc, Pack<float, 2>{{two[0], two[1]}});
      }
    }
  }
  const int oc = warp * 8 + lane * 2;
  if (c_tile == 0 && lane < 4 && oc < tile_oc && oc0 + oc < s.OC) {  // row 0 of 16 equal ones
    store_vector(to + int64_t{taps * s.C} * s.OC + oc, Pack<float, 2>{{bias_sum[0], bias_sum[1]}});
  }
}

template <class T>
__global__ void __launch_bounds__(max_warps * 32)
    pooled_mma_input_gradient_kernel(Previous previous, InputProblem<T> p) {
  previous.wait();
  input_gradient_block(p, blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(weight_threads)
    pooled_mma_weight_gradient_kernel(Previous previous, WeightProblem<T> p) {
  previous.wait();
  weight_gradient_block(p, blockIdx.x);
}

// Both. The blocks of the weight gradient come first, because each takes longer.
template <class T>
__global__ void __launch_bounds__(weight_threads)
    pooled_mma_gradients_kernel(Previous previous, InputProblem<T> input, WeightProblem<T> weight, int weight_blocks) {
  previous.wait();
  const int block = blockIdx.x;
  if (block < weight_blocks) {
    weight_gradient_block(weight, block);
  } else {
    input_gradient_block(input, block - weight_blocks);
  }
}

int64_t tiles(int64_t channels, int tile) { return (channels + tile - 1) / tile; }

template <class T>
InputProblem<T> input_problem(const Conv2dPoolReluBackward& call) {
  const Conv2dSizes& s = call.sizes;
  const Bands bands = input_gradient_bands(s);
  return {.s = conv_sizes(s),
          .W = Divisor(s.W),
          .columns = Divisor(s.W + s.KW - 1),
          .window_columns = Divisor(((s.padding + s.KW - 1) % 2 + s.W + s.KW) / 2),
          .chunks = Divisor(s.OC / chunk),
          .band = static_cast<int>(bands.rows),
          .bands = static_cast<int>(bands.count),
          .pitch = static_cast<int>(pitch_of(s.OC)),
          .warps = static_cast<int>((bands.rows * s.W + 31) / 32),
          .blocks = static_cast<int>(s.N * bands.count),
          .dy_factor = call.dy_factor,
          .weight = call.weight.data<T>(),
          .dy = call.dy.data<T>(),
          .winner = call.winner.data<uint8_t>(),
          .dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr};
}

template <class T>
WeightProblem<T> weight_problem(const Conv2dPoolReluBackward& call, float* partials) {
  const Conv2dSizes& s = call.sizes;
  const Bands bands = weight_gradient_bands(s);
  const ImageGroups groups(s);
  const int64_t columns = s.OW / 2 * 2 + s.KW - 1;
  return {.s = conv_sizes(s),
          .tile = {.chunks = Divisor(tile_c / chunk),
                   .columns = Divisor(columns),
                   .rows = static_cast<int>(2 * bands.rows + s.KH - 1),
                   .row_pixels = static_cast<int>(columns),
                   .pitch = static_cast<int>(pitch_of(tile_c)),
                   .odd = 0},
          .columns = Divisor(s.OW / 2 * 2),
          .band = static_cast<int>(bands.rows),
          .dense_pixels = static_cast<int>(dense_pixels(s, bands.rows)),
          .N = static_cast<int>(s.N),
          .images = static_cast<int>(groups.images),
          .groups = static_cast<int>(groups.count),
          .c_tiles = static_cast<int>(tiles(s.C, tile_c)),
          .dy_factor = call.dy_factor,
          .x = call.x.data<T>(),
          .dy = call.dy.data<T>(),
          .winner = call.winner.data<uint8_t>(),
          .partials = partials};
}

// Two for each multiprocessor of an H100, nearly. Beyond, a launch for each kind keeps more blocks of the input
// gradient on a multiprocessor, because it needs fewer registers.
constexpr unsigned blocks_at_once = 256;

void backward_mma(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const ImageGroups groups(s);
  const bool wants_input = call.dx.defined(), wants_weight = call.dweight.defined() || call.dbias.defined();
  float* partials = groups.count ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
  for_16_bits(call.x.dtype(), [&]<class T>() {
    const auto input = input_problem<T>(call);
    const auto weight = weight_problem<T>(call, partials);
    const auto input_blocks = static_cast<unsigned>(input.blocks * tiles(s.C, tile_c));
    const auto weight_blocks = static_cast<unsigned>(groups.count * weight.c_tiles * tiles(s.OC, tile_oc));
    const auto input_warps = static_cast<unsigned>(input.warps);
    const auto weight_warps = static_cast<unsigned>(std::max<int64_t>(s.KH * s.KW, tile_oc / 8));
    const auto input_bytes = static_cast<size_t>(input_gradient_bands(s).bytes);
    const auto weight_bytes = static_cast<size_t>(weight_gradient_bands(s).bytes);
    if (wants_input && wants_weight && input_blocks + weight_blocks <= blocks_at_once) {
      launch(pooled_mma_gradients_kernel<T>, input_blocks + weight_blocks, std::max(input_warps, weight_warps) * 32,
             std::max(input_bytes, weight_bytes), compute_stream(), input, weight, static_cast<int>(weight_blocks));
      return;
    }
    if (wants_input) {
      launch(pooled_mma_input_gradient_kernel<T>, input_blocks, input_warps * 32, input_bytes, compute_stream(), input);
    }
    if (wants_weight) {
      launch(pooled_mma_weight_gradient_kernel<T>, weight_blocks, weight_warps * 32, weight_bytes, compute_stream(),
             weight);
    }
  });
  add_partials(call, workspace, groups.count);
}

REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "mma",
                {.run = backward_mma,
                 .supported = mma_supports<Conv2dPoolReluBackward>,
                 .workspace = [](const Conv2dPoolReluBackward& call) { return ImageGroups(call.sizes).bytes; },
                 .rank = 20});

}  // namespace
}  // namespace hs
