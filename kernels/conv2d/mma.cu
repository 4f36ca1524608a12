// conv2d in 16 bits on tensor cores, for channels that are multiples of 16 and a stride of 1 or 2: three matrix
// products whose large operand is gathered on its way into shared memory, so that im2col's matrix exists nowhere.
//
//                     rows                depth                     columns
//    forward          pixels of y         taps x channels of x      channels of y
//    input gradient   pixels of x         taps x channels of dy     channels of x
//    weight gradient  taps x channels     pixels of y               channels of y
//                     of x
//
// A piece is 16 channels at one tap. A row of the first two products at a piece is 32 neighbouring bytes, wherever the
// tap finds them: a thread copies its row's with cp.async, which writes zeros for what lies outside of the image, and
// in the input gradient for the pixels that a stride of 2 skips. The third has pieces as rows, and one more, of ones:
// the bias gradient. Pixels are its depth, so ldmatrix turns both operands. Three stages of shared memory: two are on
// their way while one is multiplied. All zeros are multiplied too, and an inf or NaN in x or weight makes NaN of them.
// conv2d_pool_relu/mma.cu says how a fused form reads each pixel once.
#include <cuda_runtime.h>

#include "kernels/conv2d_pool_relu/implicit_gemm.cuh"
#include "kernels/cuda/partials.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr int stages = 3, threads = 128, tile_pixels = 128;  // of a block: a warp has 32 rows
constexpr int stage_depth = 2 * mma_depth, stage_chunks = stage_depth / chunk;

// Forward, or the input gradient, of the images that one of them reads: x or dy, and makes: y or dx.
template <class T>
struct PixelProduct {
  ConvSizes s;
  Divisor rows, columns;  // of an image of the result
  int pixels;             // of the result
  bool relu;
  const T *image, *weight, *bias;
  T* result;  // (pixels, channels)
};

// A tap, and the first of 16 channels.
struct Piece {
  int kh = 0, kw = 0, c = 0, tap = 0;
  __device__ __forceinline__ void advance(int channels, int KW) {
    c += mma_depth;
    if (c < channels) return;
    c = 0, ++tap, ++kw;
    if (kw == KW) kw = 0, ++kh;
  }
};

// tiles: of 8 columns, that a block computes. gradient: the input gradient.
template <class T, int tiles, bool gradient>
__global__ void __launch_bounds__(threads) pixel_product_kernel(Previous previous, PixelProduct<T> p) {
  previous.wait();
  constexpr int a_size = tile_pixels * stage_depth, b_size = stage_depth * tiles * 8, pitch = (tiles + 1) * chunk;
  __shared__ SharedArray<T, stages*(a_size + b_size)> memory;
  const ConvSizes& s = p.s;
  const int H = gradient ? s.OH : s.H, W = gradient ? s.OW : s.W, depth = gradient ? s.OC : s.C;  // of an image
  const int channels = gradient ? s.C : s.OC, taps = s.KH * s.KW;                                 // of the result
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int pixel0 = blockIdx.x * tile_pixels, column0 = blockIdx.y * tiles * 8;
  const auto [line, column] = p.columns.divide(min(pixel0 + thread, p.pixels - 1));
  const auto [n, row] = p.rows.divide(line);
  const int h0 = gradient ? static_cast<int>(row) + s.padding : static_cast<int>(row) * s.stride - s.padding;
  const int w0 = gradient ? static_cast<int>(column) + s.padding : static_cast<int>(column) * s.stride - s.padding;

  Piece next;
  // Starts copying this thread's share of a stage: 2 pieces, those beyond the last are zeros.
  const auto start = [&](int step) {
    const auto a = memory.data() + step % stages * (a_size + b_size), b = a + a_size;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = next.tap < taps;
      int h = gradient ? h0 - next.kh : h0 + next.kh, w = gradient ? w0 - next.kw : w0 + next.kw;
      bool inside = exists && h >= 0 && w >= 0;
      if constexpr (gradient) {
        inside = inside && (s.stride == 1 || (h % 2 == 0 && w % 2 == 0));
        h >>= s.stride - 1, w >>= s.stride - 1;  // a stride is 1 or 2
      }
      inside = inside && h < H && w < W;
      const T* from = inside ? p.image + ((int64_t{n} * H + h) * W + w) * depth + next.c : p.image;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        cp_async_16(a + chunk_place<stage_chunks>(thread, half * 2 + part), from + (inside ? part * chunk : 0),
                    inside ? 16 : 0);
      }
      static_assert(2 * tiles * chunk <= threads);
      if (const int i = thread; i < 2 * tiles * chunk) {
        if constexpr (gradient) {  // (columns, depth): the operand is its transpose
          const int c = column0 + i / 2;
          const bool is_weight = exists && c < channels;
          cp_async_16(b + chunk_place<stage_chunks>(i / 2, half * 2 + i % 2),
                      is_weight ? p.weight + (next.tap * s.C + c) * s.OC + next.c + i % 2 * chunk : p.weight,
                      is_weight ? 16 : 0);
        } else {
          const int k = i / tiles, oc = column0 + i % tiles * chunk;
          const bool is_weight = exists && oc < channels;
          cp_async_16(b + chunk_place<tiles>(half * mma_depth + k, i % tiles),
                      is_weight ? p.weight + (next.tap * s.C + next.c + k) * s.OC + oc : p.weight, is_weight ? 16 : 0);
        }
      }
      next.advance(depth, s.KW);
    }
    cp_async_commit();
  };

  float sum[tiles][2][4] = {};
  const int steps = (taps * (depth / mma_depth) + 1) / 2;
#pragma unroll
  for (int step = 0; step < stages - 1; ++step) start(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // the stage has arrived, and no thread still reads the one before
    start(step + stages - 1);
    const auto a_tile = memory.data() + step % stages * (a_size + b_size), b_tile = a_tile + a_size;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(a[i], a_tile + chunk_place<stage_chunks>(warp * 32 + i * 16 + lane % 16, half * 2 + lane / 16));
      }
#pragma unroll
      for (int j = 0; j < tiles; j += 2) {
        uint32_t b[4];
        if constexpr (gradient) {
          const int c = j * 8 + lane / 16 * 8 + lane % 8;
          ldmatrix_x4(b, b_tile + chunk_place<stage_chunks>(c, half * 2 + lane / 8 % 2));
        } else {
          ldmatrix_x4_trans(b, b_tile + chunk_place<tiles>(half * mma_depth + lane % 16, j + lane / 16));
        }
        multiply_16_columns<T, 2>(sum[j], sum[j + 1], a, b);
      }
    }
  }

  cp_async_wait<0>();
  __syncthreads();                                         // the stages are read no longer
  const auto results = memory.data() + warp * 32 * pitch;  // so that 16 bytes are stored at once
#pragma unroll
  for (int j = 0; j < tiles; ++j) {
    const int at = j * 8 + lane % 4 * 2;
    float b[2] = {};
    if (p.bias && column0 + at < channels) b[0] = to_f32(p.bias[column0 + at]), b[1] = to_f32(p.bias[column0 + at + 1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows in steps of 8
      Pack<T, 2> two;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float value = sum[j][i / 2][i % 2 * 2 + e] + b[e];
        two.value[e] = from_f32<T>(p.relu && value <= 0 ? 0.0f : value);
      }
      store_vector(results + ((i * 8 + lane / 4) * pitch + at), two);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 32 * tiles; i += 32) {
    const int pixel = pixel0 + warp * 32 + i / tiles, c = column0 + i % tiles * chunk;
    if (pixel >= p.pixels || c >= channels) continue;
    store_vector(p.result + int64_t{pixel} * channels + c,
                 load_vector<Pack<T, chunk>>(results + (i / tiles * pitch + i % tiles * chunk)));
  }
}

template <class T>
struct WeightProduct {
  ConvSizes s;
  Divisor rows, columns;  // of an image of dy
  int pixels, per_part;   // of dy; a part's
  const T *x, *dy;
  float* partials;  // (parts, K + 1, OC)
};

constexpr int block_pieces = threads / 32;  // a warp has one

// A block sums a part of the pixels, for four pieces and `tiles` times 8 channels of dy.
template <class T, int tiles>
__global__ void __launch_bounds__(threads) weight_product_kernel(Previous previous, WeightProduct<T> p) {
  previous.wait();
  constexpr int parts = 2 * block_pieces;  // chunks of a pixel of x
  constexpr int a_size = stage_depth * parts * chunk, b_size = stage_depth * tiles * chunk;
  __shared__ SharedArray<T, stages*(a_size + b_size)> memory;
  const ConvSizes& s = p.s;
  const int taps = s.KH * s.KW, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int first = blockIdx.x * p.per_part, end = min(first + p.per_part, p.pixels);
  const int oc0 = blockIdx.z * tiles * 8, piece0 = blockIdx.y * block_pieces, pieces = taps * (s.C / mma_depth);
  // What this thread copies of every pixel of its.
  const int own = thread % parts, piece = piece0 + own / 2, tap = piece / (s.C / mma_depth);
  const int kh = tap / s.KW, kw = tap % s.KW, c = piece % (s.C / mma_depth) * mma_depth + own % 2 * chunk;
  if (piece >= pieces) {
    Pack<T, chunk> ones = {};
    if (piece == pieces && own % 2 == 0) ones.value[0] = from_f32<T>(1.0f);
    for (int i = thread; i < stages * stage_depth * parts; i += threads) {
      const int row = i / parts % stage_depth;
      store_vector(memory.data() + i / parts / stage_depth * (a_size + b_size) + chunk_place<parts>(row, own), ones);
    }
  }
  const auto start = [&](int step) {
    const auto a = memory.data() + step % stages * (a_size + b_size), b = a + a_size;
#pragma unroll
    for (int j = 0; j < stage_depth * parts / threads; ++j) {
      if (piece >= pieces) break;
      const int i = thread + j * threads;
      const int pixel = first + step * stage_depth + i / parts;
      const auto [line, column] = p.columns.divide(min(pixel, p.pixels - 1));
      const auto [n, row] = p.rows.divide(line);
      const int h = static_cast<int>(row) * s.stride - s.padding + kh;
      const int w = static_cast<int>(column) * s.stride - s.padding + kw;
      const bool inside = pixel < end && h >= 0 && h < s.H && w >= 0 && w < s.W;
      cp_async_16(a + chunk_place<parts>(i / parts, own),
                  inside ? p.x + ((int64_t{n} * s.H + h) * s.W + w) * s.C + c : p.x, inside ? 16 : 0);
    }
#pragma unroll
    for (int j = 0; j < stage_depth * tiles / threads; ++j) {
      const int i = thread + j * threads;
      const int pixel = first + step * stage_depth + i / tiles, oc = oc0 + i % tiles * chunk;
      const bool exists = pixel < end && oc < s.OC;
      cp_async_16(b + chunk_place<tiles>(i / tiles, i % tiles), exists ? p.dy + int64_t{pixel} * s.OC + oc : p.dy,
                  exists ? 16 : 0);
    }
    cp_async_commit();
  };

  float sum[tiles][1][4] = {};
#pragma unroll
  for (int step = 0; step < stages - 1; ++step) start(step);
  for (int step = 0; first + step * stage_depth < end; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // as above
    start(step + stages - 1);
    const auto a_tile = memory.data() + step % stages * (a_size + b_size), b_tile = a_tile + a_size;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[1][4];
      const int pixel = half * mma_depth + lane / 16 * 8 + lane % 8;
      ldmatrix_x4_trans(a[0], a_tile + chunk_place<parts>(pixel, warp * 2 + lane / 8 % 2));
#pragma unroll
      for (int j = 0; j < tiles; j += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, b_tile + chunk_place<tiles>(half * mma_depth + lane % 16, j + lane / 16));
        multiply_16_columns<T, 1>(sum[j], sum[j + 1], a, b);
      }
    }
  }
  cp_async_wait<0>();  // of stages that nobody multiplies
  const int K = taps * s.C;
  float* to = p.partials + int64_t{blockIdx.x} * (K + 1) * s.OC;
#pragma unroll
  for (int j = 0; j < tiles; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int k = (piece0 + warp) * mma_depth + i * 8 + lane / 4, oc = oc0 + j * 8 + lane % 4 * 2;
      if (k > K || oc >= s.OC) continue;
      store_vector(to + int64_t{k} * s.OC + oc, Pack<float, 2>{{sum[j][0][2 * i], sum[j][0][2 * i + 1]}});
    }
  }
}

int64_t in_tiles(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

// Parts of the pixels whose products are summed apart: by the shapes alone, enough blocks for an H100.
struct PixelParts {
  explicit PixelParts(const Conv2dSizes& s) {
    constexpr int64_t blocks = 512, least = 8 * stage_depth;
    const int64_t pixels = s.N * s.OH * s.OW;
    const int64_t others = in_tiles(s.K() / mma_depth + 1, block_pieces) * in_tiles(s.OC, 64);
    per_part =
        in_tiles(std::max(in_tiles(pixels, std::max<int64_t>(blocks / others, 1)), least), stage_depth) * stage_depth;
    count = in_tiles(pixels, per_part);
    bytes = count * (s.K() + 1) * s.OC * static_cast<int64_t>(sizeof(float));
  }
  int64_t per_part, count, bytes;
};

template <class Call>
bool supports(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  const bool channels = s.C % mma_depth == 0 && s.OC % mma_depth == 0 && s.C > 0 && s.OC > 0;
  return is_16_bit(call.x) && are_aligned(call.tensors()) && channels && s.stride <= 2 && s.padding < max_indices / 2 &&
         s.K() * s.OC <= max_indices && (s.N * std::max(s.H * s.W, s.OH * s.OW) + tile_pixels) <= max_indices;
}

// With 8 tiles of columns, or 4 if there are no more channels. relu, bias: of the forward pass
template <bool gradient, class T>
void multiply(const Conv2dSizes& s, const Tensor& image, const Tensor& weight, Tensor& result, bool relu = false,
              const T* bias = nullptr) {
  const Shape& to = result.shape();
  const PixelProduct<T> product = {.s = conv_sizes(s),
                                   .rows = Divisor(to[1]),
                                   .columns = Divisor(to[2]),
                                   .pixels = static_cast<int>(to.rows()),
                                   .relu = relu,
                                   .image = image.data<T>(),
                                   .weight = weight.data<T>(),
                                   .bias = bias,
                                   .result = result.mutable_data<T>()};
  const bool wide = to[3] > 32;
  const dim3 blocks(static_cast<unsigned>(in_tiles(product.pixels, tile_pixels)),
                    static_cast<unsigned>(in_tiles(to[3], wide ? 64 : 32)));
  launch(wide ? pixel_product_kernel<T, 8, gradient> : pixel_product_kernel<T, 4, gradient>, blocks, threads, 0,
         compute_stream(), product);
}

void forward(const Conv2dForward& call) {
  for_16_bits(call.x.dtype(), [&]<class T>() {
    multiply<false, T>(call.sizes, call.x, call.weight, call.y, call.relu,
                       call.bias.defined() ? call.bias.data<T>() : nullptr);
  });
}

template <class T>
void sum_weights(const Conv2dBackward& call, const PixelParts& parts, float* partials) {
  const Conv2dSizes& s = call.sizes;
  const WeightProduct<T> product = {.s = conv_sizes(s),
                                    .rows = Divisor(s.OH),
                                    .columns = Divisor(s.OW),
                                    .pixels = static_cast<int>(s.N * s.OH * s.OW),
                                    .per_part = static_cast<int>(parts.per_part),
                                    .x = call.x.data<T>(),
                                    .dy = call.dy.data<T>(),
                                    .partials = partials};
  const bool wide = s.OC > 32;
  const dim3 blocks(static_cast<unsigned>(parts.count),
                    static_cast<unsigned>(in_tiles(s.K() / mma_depth + 1, block_pieces)),
                    static_cast<unsigned>(in_tiles(s.OC, wide ? 64 : 32)));
  launch(wide ? weight_product_kernel<T, 8> : weight_product_kernel<T, 4>, blocks, threads, 0, compute_stream(),
         product);
}

void backward(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const PixelParts parts(s);
  const bool wants_weight = call.dweight.defined() || call.dbias.defined();
  float* partials = parts.count ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
  for_16_bits(call.x.dtype(), [&]<class T>() {
    if (call.dx.defined()) multiply<true, T>(s, call.dy, call.weight, call.dx);
    if (wants_weight) sum_weights<T>(call, parts, partials);
  });
  add_partials(call, workspace, parts.count);
}

REGISTER_KERNEL(conv2d_forward, cuda, "mma", {.run = forward, .supported = supports<Conv2dForward>, .rank = 20});
REGISTER_KERNEL(conv2d_backward, cuda, "mma",
                {.run = backward,
                 .supported = [](const Conv2dBackward& call) { return supports(call) && without_relu(call); },
                 .workspace = [](const Conv2dBackward& call) { return PixelParts(call.sizes).bytes; },
                 .rank = 20});

}  // namespace
}  // namespace hs
