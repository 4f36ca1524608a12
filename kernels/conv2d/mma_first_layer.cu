// conv2d and conv2d_pool_relu of a first layer (first_layer.cuh) in 16 bits on tensor cores. A field has 9 or 27
// numbers where an instruction multiplies 16 or 32: the rest are zeros, and still it does in one instruction what takes
// a warp 64 otherwise (direct.cu). Nothing is laid out for it; lanes load their operands where they are.
//
// Forward: a warp computes 8 windows of 2 x 2 pixels. Row g of the first product is the field of pixel 0 of window g,
// row g + 8 that of pixel 1; the second has pixels 2 and 3. So the four results of a window meet in one lane, as in
// conv2d_pool_relu/mma.cu. The weights stay in registers, their columns in an order that gives each lane neighbouring
// channels of y, which it stores at once.
//
// Weight gradient: a product whose depth is pixels. Rows of A are taps of the field, and one more row is all ones: it
// makes the bias gradient. dy, or what pooling left of it, passes through shared memory, where ldmatrix turns it.
// Zeros of dy and the padding are multiplied too, and an inf or NaN in x or weight makes NaN of them.
//
//      A  (taps, 16 pixels)                   B  (16 pixels, 8 channels each)
//      x at pixel + tap                       dy; pooled: of the four pixels of a window that which won, zeros else
//      1 1 1 1 ...
#include <cuda_runtime.h>

#include "kernels/conv2d/first_layer.cuh"
#include "kernels/conv2d_pool_relu/implicit_gemm.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr int warps = block_threads / 32;

template <int C>
constexpr int field_size = 9 * C;
template <int C>
constexpr int field_tiles = (field_size<C> + mma_depth) / mma_depth;

// A number of the field.
struct Tap {
  int row, column;  // of its pixel
  int offset;       // in x, from the field's corner
  bool exists;
};
template <int C>
__device__ __forceinline__ Tap tap_of(int k, const FirstLayerSizes& s) {
  const int row = k / C / field_side, column = k / C % field_side;
  return {row, column, (row * s.W + column) * C + k % C, k < field_size<C>};
}

// The corner of a field, and where it begins in x, or would.
struct Corner {
  int h, w, offset;
};
template <int C>
__device__ __forceinline__ Corner corner_of(const FirstLayerSizes& s, int n, int oh, int ow) {
  const int h = oh - s.padding, w = ow - s.padding;
  return {h, w, ((n * s.H + h) * s.W + w) * C};
}

// is_inside: no field reaches into the padding, or beyond the image.
template <bool is_inside, class T>
__device__ __forceinline__ T value_at(const FirstLayerSizes& s, const T* x, const Corner& corner, const Tap& tap) {
  bool inside = tap.exists;
  if constexpr (!is_inside) {
    const int h = corner.h + tap.row, w = corner.w + tap.column;
    inside = inside && h >= 0 && h < s.H && w >= 0 && w < s.W;
  }
  return inside ? x[corner.offset + tap.offset] : T{};
}

template <class T>
__device__ __forceinline__ uint32_t both(T low, T high) {
  return low.bits | static_cast<uint32_t>(high.bits) << 16;
}

// tiles: of 8 output channels, that a warp computes.
template <class T, int C, int tiles, bool pooled>
__global__ void __launch_bounds__(block_threads)
    first_layer_forward_kernel(Previous previous, FirstLayerSizes s, bool relu, const T* x, const T* weight,
                               const T* bias, T* y, uint8_t* winner) {
  previous.wait();
  constexpr int steps = field_tiles<C>, channels = 2 * tiles;  // of a lane
  const int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
  const int oc0 = blockIdx.y * 8 * tiles, own_oc = oc0 + lane % 4 * channels;
  Tap taps[steps][4];           // of this lane's columns of A, pair + 0, 1, 8 and 9
  uint32_t w[steps][tiles][2];  // column c of tile j is channel c / 2 * channels + 2 * j + c % 2
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) taps[step][i] = tap_of<C>(step * mma_depth + pair + i / 2 * 8 + i % 2, s);
#pragma unroll
    for (int j = 0; j < 2 * tiles; ++j) {
      const int k = step * mma_depth + pair + j % 2 * 8;
      const T* column = weight + (oc0 + group / 2 * channels + j / 2 * 2 + group % 2);
      w[step][j / 2][j % 2] =
          both(k < field_size<C> ? column[k * s.OC] : T{}, k + 1 < field_size<C> ? column[(k + 1) * s.OC] : T{});
    }
  }
  float b[channels];
#pragma unroll
  for (int i = 0; i < channels; ++i) b[i] = bias ? to_f32(bias[own_oc + i]) : 0.0f;

  for (int first = (blockIdx.x * warps + threadIdx.x / 32) * 8; first < s.count; first += gridDim.x * warps * 8) {
    const int i = first + group;
    const auto [n, row, column] = s.place(min(i, s.count - 1));
    float sum[2][tiles][4];
#pragma unroll
    for (int j = 0; j < 2 * tiles * 4; ++j) sum[j / (tiles * 4)][j / 4 % tiles][j % 4] = b[j / 4 % tiles * 2 + j % 2];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // of the windows: pixels 0 and 1, or 2 and 3
        uint32_t a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const Corner corner = corner_of<C>(s, static_cast<int>(n), 2 * row + half, 2 * column + r % 2);
          a[r] = both(value_at<pooled>(s, x, corner, taps[step][r / 2 * 2]),
                      value_at<pooled>(s, x, corner, taps[step][r / 2 * 2 + 1]));
        }
#pragma unroll
        for (int j = 0; j < tiles; ++j) mma_m16n8k16<Native<T>>(sum[half][j], a, w[step][j], sum[half][j]);
      }
    }
    if (i >= s.count) continue;
    if constexpr (pooled) {
      Pack<T, channels> values;
      Pack<uint8_t, channels> winners;
#pragma unroll
      for (int c = 0; c < channels; ++c) {
        const auto& [above, below] = sum;
        const int j = c / 2, e = c % 2;
        const float pixels[4] = {above[j][e], above[j][2 + e], below[j][e], below[j][2 + e]};
        const Pooled best = pool_and_relu(pixels);
        values.value[c] = from_f32<T>(best.value);
        winners.value[c] = static_cast<uint8_t>(best.winner);
      }
      store_vector(y + int64_t{i} * s.OC + own_oc, values);
      store_vector(winner + int64_t{i} * s.OC + own_oc, winners);
    } else {
#pragma unroll
      for (int place = 0; place < 4; ++place) {
        const int oh = 2 * row + place / 2, ow = 2 * column + place % 2;
        if (oh >= s.OH || ow >= s.OW) continue;
        Pack<T, channels> values;
#pragma unroll
        for (int c = 0; c < channels; ++c) {
          const float value = sum[place / 2][c / 2][place % 2 * 2 + c % 2];
          values.value[c] = from_f32<T>(relu && value <= 0 ? 0.0f : value);
        }
        store_vector(y + ((n * s.OH + oh) * s.OW + ow) * s.OC + own_oc, values);
      }
    }
  }
}

constexpr int turn_chunks = 128;  // of dy that a warp multiplies in a turn, in shared memory: (pixels, tiles)

// What a lane brings of dy for a turn: chunks of windows or of pixels, and what decides which count.
template <class T, bool pooled>
struct DyShare {
  static constexpr int count = pooled ? 1 : turn_chunks / 32;
  using Mask = std::conditional_t<pooled, Pack<uint32_t, chunk / 4>, Pack<T, chunk>>;  // bytes: nvcc takes them apart
  Pack<T, chunk> dy[count];
  Mask mask[count];

  // first: window or pixel of the turn, end: of the block. Zeros from there on.
  template <int tiles>
  __device__ __forceinline__ void load(const PixelGradients<T, pooled>& from, int lane, int first, int end, int OC,
                                       int oc0) {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int item = lane + j * 32, i = first + item / tiles;
      dy[j] = {};
      mask[j] = {};
      if (i >= end) continue;
      const int64_t at = int64_t{i} * OC + oc0 + item % tiles * chunk;
      dy[j] = load_vector<Pack<T, chunk>>(from.dy + at);
      if (from.mask) mask[j] = load_vector<Mask>(from.mask + at);
    }
  }

  template <int tiles>
  __device__ __forceinline__ void store(const PixelGradients<T, pooled>& from, int lane, SharedPointer<T> to) {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int item = lane + j * 32;
      if constexpr (pooled) {
        if (from.factor != 1) {
#pragma unroll
          for (int e = 0; e < chunk; ++e) dy[j].value[e] = scaled(dy[j].value[e], from.factor);
        }
#pragma unroll
        for (int place = 0; place < 4; ++place) {
          store_vector(to + chunk_place<tiles>(item / tiles * 4 + place, item % tiles), won_by(place, dy[j], mask[j]));
        }
      } else {
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          if (from.mask && to_f32(mask[j].value[e]) <= 0) dy[j].value[e] = T{};  // not of NaN
        }
        store_vector(to + chunk_place<tiles>(item / tiles, item % tiles), dy[j]);
      }
    }
  }
};

template <class T, int C, int tiles, bool pooled>
__global__ void __launch_bounds__(block_threads)
    first_layer_weight_gradient_kernel(Previous previous, FirstLayerSizes s, int per_block, const T* x,
                                       PixelGradients<T, pooled> gradients, float* partials) {
  previous.wait();
  constexpr int K = field_size<C>, rows = field_tiles<C>, pixels = turn_chunks / tiles;
  constexpr int items = pooled ? pixels / 4 : pixels;  // of a turn, each with a place in x
  __shared__ SharedArray<T, warps * turn_chunks * chunk> shared_dy;
  __shared__ SharedArray<float, warps * mma_depth * 8 * tiles> warp_sums;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, pair = lane % 4 * 2;
  const int oc0 = blockIdx.y * 8 * tiles;
  const auto own_dy = shared_dy.data() + warp * turn_chunks * chunk;
  Tap taps[rows][2];
#pragma unroll
  for (int i = 0; i < 2 * rows; ++i) taps[i / 2][i % 2] = tap_of<C>(i * 8 + group, s);
  float sum[tiles][rows][4] = {};
  DyShare<T, pooled> next;
  const int begin = blockIdx.x * per_block, end = min(begin + per_block, s.count);
  next.template load<tiles>(gradients, lane, begin + warp * items, end, s.OC, oc0);
  for (int first = begin + warp * items; first < end; first += warps * items) {
    __syncwarp();  // the turn before has been read
    next.template store<tiles>(gradients, lane, own_dy);
    __syncwarp();
    next.template load<tiles>(gradients, lane, first + warps * items, end, s.OC, oc0);
    Corner corners[(items + 31) / 32];  // of the items of all lanes; those beyond the end meet zeros
#pragma unroll
    for (int j = 0; j < (items + 31) / 32; ++j) {
      const auto [n, row, column] = s.place(min(first + j * 32 + lane, end - 1));
      corners[j] = corner_of<C>(s, static_cast<int>(n), pooled ? 2 * row : row, pooled ? 2 * column : column);
    }
#pragma unroll
    for (int step = 0; step < pixels / mma_depth; ++step) {
      uint32_t a[rows][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // of the depth
        Corner of[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int pixel = step * mma_depth + half * 8 + pair + i, item = pooled ? pixel / 4 : pixel;
          const Corner& mine = corners[pooled ? 0 : step * mma_depth / 32];
          of[i] = {__shfl_sync(0xffffffffu, mine.h, item % 32), __shfl_sync(0xffffffffu, mine.w, item % 32),
                   __shfl_sync(0xffffffffu, mine.offset, item % 32)};
          if constexpr (pooled) {
            of[i].h += pair / 2 % 2;
            of[i].w += i;
            of[i].offset += (pair / 2 % 2 * s.W + i) * C;
          }
        }
#pragma unroll
        for (int r = 0; r < 2 * rows; ++r) {
          const Tap& tap = taps[r / 2][r % 2];
          a[r / 2][r % 2 + 2 * half] =
              r * 8 + group == K ? both(from_f32<T>(1.0f), from_f32<T>(1.0f))
                                 : both(value_at<pooled>(s, x, of[0], tap), value_at<pooled>(s, x, of[1], tap));
        }
      }
#pragma unroll
      for (int j = 0; j < tiles; j += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, own_dy + chunk_place<tiles>(step * mma_depth + lane % 16, j + lane / 16));
        multiply_16_columns<T, rows>(sum[j], sum[j + 1], a, b);
      }
    }
  }
  // The warps meet.
  constexpr int columns = 8 * tiles, size = mma_depth * columns;
#pragma unroll
  for (int row = 0; row < rows; ++row) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < tiles * 4; ++i) {
      const int at = (group + i % 4 / 2 * 8) * columns + i / 4 * 8 + pair + i % 2;
      warp_sums[warp * size + at] = sum[i / 4][row][i % 4];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < size; at += block_threads) {
      const int k = row * mma_depth + at / columns;
      float total[warps];
#pragma unroll
      for (int j = 0; j < warps; ++j) total[j] = warp_sums[j * size + at];
      if (k > K) continue;
      partials[(int64_t{blockIdx.x} * (K + 1) + k) * s.OC + oc0 + at % columns] =
          ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    }
  }
}

// About four blocks for each multiprocessor of an H100.
struct MmaWay {
  static constexpr int windows = warps * 8, rank = 20;
  static constexpr int64_t max_parts = 512;
  static int64_t least_of_part(bool pooled) {
    return 2 * warps * turn_chunks / 4 / (pooled ? 4 : 1);  // two turns of a warp: windows or pixels of 32 channels
  }
  static int64_t channels(const Conv2dSizes& s) { return s.OC % 32 == 0 ? 32 : 16; }
  template <class Call>
  static bool supports(const Call& call) {
    const Conv2dSizes& s = call.sizes;
    if (!is_first_layer(call) || call.x.dtype() == DType::f32 || s.OC % 16 != 0) return false;
    if (pools<Call> && s.padding > 0) return false;  // else no field of a whole window reaches beyond the image
    return are_aligned(call.tensors()) && s.N * s.H * s.W * s.C <= max_indices;
  }
  template <class Body>
  static void for_type(DType dtype, const Body& body) {
    for_16_bits(dtype, body);
  }
  template <class T, bool pooled>
  static FirstLayerKernels<T, pooled> kernels(const Conv2dSizes& s) {
    const auto with = [&]<int C, int tiles>() -> FirstLayerKernels<T, pooled> {
      return {first_layer_forward_kernel<T, C, tiles, pooled>, first_layer_weight_gradient_kernel<T, C, tiles, pooled>};
    };
    if (s.C == 1) return channels(s) == 32 ? with.template operator()<1, 4>() : with.template operator()<1, 2>();
    return channels(s) == 32 ? with.template operator()<3, 4>() : with.template operator()<3, 2>();
  }
};

REGISTER_KERNEL(conv2d_forward, cuda, "mma_first_layer", {forward_by<MmaWay, Conv2dForward>});
REGISTER_KERNEL(conv2d_backward, cuda, "mma_first_layer", {backward_by<MmaWay, Conv2dBackward>});
REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "mma_first_layer", {forward_by<MmaWay, Conv2dPoolReluForward>});
REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "mma_first_layer", {backward_by<MmaWay, Conv2dPoolReluBackward>});

}  // namespace
}  // namespace hs
