// conv2d and conv2d_pool_relu of images with one or three channels by 3 x 3 fields, on the GPU: the first layer, in all
// types. The field has 9 or 27 numbers, too few for matrix units, so a lane is an output channel and
// keeps the field's weights in registers. A warp computes a window of 2 x 2 pixels of 32 channels:
//
//      x            4 x 4 pixels, read once; all lanes read the same address, which is one access
//    + - - - +
//    | o o   |      o  the four pixels of the window: each lane adds 4 x 9 products in its registers,
//    | o o   |         then bias, ReLU and, if pooled, the largest of the four
//    |       |
//    + - - - +      y: 32 neighbouring channels per store
//
// Backward: a warp adds dy times the pixels of x into the registers of its lanes, for every 8th window of its block's
// part (if not pooled, every 8th pixel); the warps of a block meet in shared memory, the blocks in partials.cuh. Where
// dy is zero nothing is multiplied.
#include <cuda_runtime.h>

#include "kernels/conv2d/first_layer.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr int direct_warps = block_threads / 32;

template <class T, int C, bool pooled>
__global__ void __launch_bounds__(block_threads)
    direct_forward_kernel(Previous previous, FirstLayerSizes s, bool relu, const T* x, const T* weight, const T* bias,
                          T* y, uint8_t* winner) {
  previous.wait();
  const int oc = blockIdx.y * 32 + threadIdx.x % 32;
  if (oc >= s.OC) return;
  float w[field_side][field_side][C];
#pragma unroll
  for (int k = 0; k < field_side * field_side * C; ++k) {
    w[k / C / field_side][k / C % field_side][k % C] = to_f32(weight[k * s.OC + oc]);
  }
  const float b = bias ? to_f32(bias[oc]) : 0.0f;
  for (int i = blockIdx.x * direct_warps + threadIdx.x / 32; i < s.count; i += gridDim.x * direct_warps) {
    const auto [n, row, column] = s.place(i);
    const int h0 = 2 * row - s.padding, w0 = 2 * column - s.padding;
    const T* from = x + ((n * s.H + h0) * s.W + w0) * C;  // read only where it is inside
    float sum[4] = {b, b, b, b};
#pragma unroll
    for (int p = 0; p < 16; ++p) {
      const int ph = p / 4, pw = p % 4;
      if (h0 + ph < 0 || h0 + ph >= s.H || w0 + pw < 0 || w0 + pw >= s.W) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const float value = to_f32(from[(ph * s.W + pw) * C + c]);
#pragma unroll
        for (int place = 0; place < 4; ++place) {
          const int kh = ph - place / 2, kw = pw - place % 2;
          if (kh >= 0 && kh < field_side && kw >= 0 && kw < field_side) {
            sum[place] = fmaf(value, w[kh][kw][c], sum[place]);
          }
        }
      }
    }
    if constexpr (pooled) {
      const Pooled best = pool_and_relu(sum);
      y[int64_t{i} * s.OC + oc] = from_f32<T>(best.value);
      winner[int64_t{i} * s.OC + oc] = static_cast<uint8_t>(best.winner);
    } else {
#pragma unroll
      for (int place = 0; place < 4; ++place) {
        const int oh = 2 * row + place / 2, ow = 2 * column + place % 2;
        if (oh >= s.OH || ow >= s.OW) continue;
        const bool is_zero = relu && sum[place] <= 0;
        y[((n * s.OH + oh) * s.OW + ow) * s.OC + oc] = from_f32<T>(is_zero ? 0.0f : sum[place]);
      }
    }
  }
}

template <class T, int C, bool pooled>
__global__ void __launch_bounds__(block_threads)
    direct_weight_gradient_kernel(Previous previous, FirstLayerSizes s, int per_block, const T* x,
                                  PixelGradients<T, pooled> gradients, float* partials) {
  previous.wait();
  constexpr int K = field_side * field_side * C, lanes = 32;
  __shared__ SharedArray<float, direct_warps * 32> warp_sums;
  const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes, oc = blockIdx.y * lanes + lane;
  float sum[K + 1] = {};
  const int first = blockIdx.x * per_block, end = min(first + per_block, s.count);
  for (int i = first + warp; i < end && oc < s.OC; i += direct_warps) {
    const auto [n, row, column] = s.place(i);
    const int64_t at = int64_t{i} * s.OC + oc;
    int oh = row, ow = column;
    bool is_open = true;
    if constexpr (pooled) {
      const int place = gradients.mask[at];
      is_open = place != closed;
      oh = 2 * row + place / 2;
      ow = 2 * column + place % 2;
    } else if (gradients.mask) {
      is_open = !(to_f32(gradients.mask[at]) <= 0);  // also of NaN
    }
    const float g = is_open ? to_f32(scaled(gradients.dy[at], gradients.factor)) : 0.0f;
    if (g == 0) continue;
    const int h0 = oh - s.padding, w0 = ow - s.padding;
    const T* from = x + ((n * s.H + h0) * s.W + w0) * C;  // read only where it is inside
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int kh = k / C / field_side, kw = k / C % field_side;
      const bool inside = h0 + kh >= 0 && h0 + kh < s.H && w0 + kw >= 0 && w0 + kw < s.W;
      if (inside) sum[k] = fmaf(g, to_f32(from[(kh * s.W + kw) * C + k % C]), sum[k]);
    }
    sum[K] += g;
  }
#pragma unroll
  for (int k = 0; k <= K; ++k) {
    warp_sums[threadIdx.x] = sum[k];
    __syncthreads();
    if (warp == k % direct_warps && oc < s.OC) {
      float total[direct_warps];
#pragma unroll
      for (int j = 0; j < direct_warps; ++j) total[j] = warp_sums[j * lanes + lane];
      partials[(int64_t{blockIdx.x} * (K + 1) + k) * s.OC + oc] =
          ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    }
    __syncthreads();
  }
}

struct DirectWay {
  static constexpr int windows = direct_warps, rank = 10;
  static constexpr int64_t max_parts = 256;
  static int64_t least_of_part(bool) { return 4 * direct_warps; }
  static int64_t channels(const Conv2dSizes&) { return 32; }
  template <class Call>
  static bool supports(const Call& call) {
    return is_first_layer(call);
  }
  template <class Body>
  static void for_type(DType dtype, const Body& body) {
    for_float_type(dtype, body);
  }
  template <class T, bool pooled>
  static FirstLayerKernels<T, pooled> kernels(const Conv2dSizes& s) {
    if (s.C == 1) return {direct_forward_kernel<T, 1, pooled>, direct_weight_gradient_kernel<T, 1, pooled>};
    return {direct_forward_kernel<T, 3, pooled>, direct_weight_gradient_kernel<T, 3, pooled>};
  }
};

REGISTER_KERNEL(conv2d_forward, cuda, "direct", {forward_by<DirectWay, Conv2dForward>});
REGISTER_KERNEL(conv2d_backward, cuda, "direct", {backward_by<DirectWay, Conv2dBackward>});
REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "direct", {forward_by<DirectWay, Conv2dPoolReluForward>});
REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "direct", {backward_by<DirectWay, Conv2dPoolReluBackward>});

}  // namespace
}  // namespace hs
