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
// part (if not pooled, every 8th pixel); the warps of a block meet in shared memory, the blocks in partials.cuh.
#include <cuda_runtime.h>

#include "kernels/conv2d/partials.cuh"
#include "kernels/conv2d_pool_relu/input_gradient.cuh"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr int direct_warps = block_threads / 32, direct_side = 3;

// Rows and columns of what a warp processes at once.
struct DirectSizes {
  DirectSizes(const Conv2dSizes& s, int64_t rows_, int64_t columns_)
      : rows(rows_),
        columns(columns_),
        H(static_cast<int>(s.H)),
        W(static_cast<int>(s.W)),
        OC(static_cast<int>(s.OC)),
        OH(static_cast<int>(s.OH)),
        OW(static_cast<int>(s.OW)),
        padding(static_cast<int>(s.padding)),
        count(static_cast<int>(s.N * rows.divisor() * columns.divisor())) {}
  Divisor rows, columns;
  int H, W, OC, OH, OW, padding;
  int count;  // of all images

  // Windows of 2 x 2 pixels; without pooling, those at the right and at the bottom may be incomplete.
  static DirectSizes windows(const Conv2dSizes& s, bool pooled) {
    return pooled ? DirectSizes(s, s.OH / 2, s.OW / 2) : DirectSizes(s, (s.OH + 1) / 2, (s.OW + 1) / 2);
  }
  // What has a gradient: windows if they were pooled, otherwise pixels.
  static DirectSizes gradients(const Conv2dSizes& s, bool pooled) {
    return pooled ? DirectSizes(s, s.OH / 2, s.OW / 2) : DirectSizes(s, s.OH, s.OW);
  }

  struct Window {
    int64_t n;
    int row, column;
  };
  __device__ __forceinline__ Window window(int i) const {
    const auto [line, column] = columns.divide(static_cast<uint32_t>(i));
    const auto [n, row] = rows.divide(line);
    return {n, static_cast<int>(row), static_cast<int>(column)};
  }
};

// pooled: y is the pooled tensor and `winner` says which pixel it is. Otherwise `relu` decides.
template <class T, int C, bool pooled>
__global__ void __launch_bounds__(block_threads)
    direct_forward_kernel(DirectSizes s, bool relu, const T* x, const T* weight, const T* bias, T* y, uint8_t* winner) {
  const int oc = blockIdx.y * 32 + threadIdx.x % 32;
  if (oc >= s.OC) return;
  float w[direct_side][direct_side][C];
#pragma unroll
  for (int k = 0; k < direct_side * direct_side * C; ++k) {
    w[k / C / direct_side][k / C % direct_side][k % C] = to_f32(weight[k * s.OC + oc]);
  }
  const float b = bias ? to_f32(bias[oc]) : 0.0f;
  for (int i = blockIdx.x * direct_warps + threadIdx.x / 32; i < s.count; i += gridDim.x * direct_warps) {
    const auto [n, row, column] = s.window(i);
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
          if (kh >= 0 && kh < direct_side && kw >= 0 && kw < direct_side) {
            sum[place] = fmaf(value, w[kh][kw][c], sum[place]);
          }
        }
      }
    }
    if constexpr (pooled) {
      float best = sum[0];
      int where = 0;
#pragma unroll
      for (int place = 1; place < 4; ++place) {
        const bool better = !(sum[place] <= best) && best == best;  // true for the first NaN
        best = better ? sum[place] : best;
        where = better ? place : where;
      }
      const bool is_closed = best <= 0;  // false for NaN, which is kept
      y[int64_t{i} * s.OC + oc] = from_f32<T>(is_closed ? 0.0f : best);
      winner[int64_t{i} * s.OC + oc] = static_cast<uint8_t>(is_closed ? closed : where);
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

// partials (gridDim.x, 9 * C + 1, OC). A block sums the gradients first to first + per_block - 1.
template <class T, int C, bool pooled>
__global__ void __launch_bounds__(block_threads)
    direct_weight_gradient_kernel(DirectSizes s, int per_block, const T* x, PixelGradients<T, pooled> gradients,
                                  float* partials) {
  constexpr int K = direct_side * direct_side * C, lanes = 32;
  __shared__ SharedArray<float, direct_warps * 32> warp_sums;
  const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes, oc = blockIdx.y * lanes + lane;
  float sum[K + 1] = {};
  const int first = blockIdx.x * per_block, end = min(first + per_block, s.count);
  for (int i = first + warp; i < end && oc < s.OC; i += direct_warps) {
    const auto [n, row, column] = s.window(i);
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
      const int kh = k / C / direct_side, kw = k / C % direct_side;
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

template <class Call>
constexpr bool pools = std::is_same_v<Call, Conv2dPoolReluForward> || std::is_same_v<Call, Conv2dPoolReluBackward>;

template <class Call>
bool supports_direct(const Call& call) {
  constexpr bool pooled = pools<Call>;
  const Conv2dSizes& s = call.sizes;
  if constexpr (std::is_same_v<Call, Conv2dPoolReluForward>) {
    if (call.dropped) return false;
  }
  const bool field = s.KH == direct_side && s.KW == direct_side && s.stride == 1 && (s.C == 1 || s.C == 3);
  const int64_t gradients = pooled ? (s.OH / 2) * (s.OW / 2) : s.OH * s.OW;
  return is_float(call.x) && field && s.OC > 0 && s.padding < most_indices && gradients > 0 &&
         std::max(s.H * s.W * s.C, std::max(s.N, int64_t{1}) * gradients) <= most_indices;
}

// Gradients per block, and blocks, of the weight gradient: by the shapes alone.
struct DirectParts {
  DirectParts(const Conv2dSizes& s, bool pooled) {
    const int64_t gradients = DirectSizes::gradients(s, pooled).count, most = 256;
    per_block = std::max<int64_t>((gradients + most - 1) / most, 4 * direct_warps);
    blocks = (gradients + per_block - 1) / per_block;
    bytes = blocks * (s.K() + 1) * s.OC * static_cast<int64_t>(sizeof(float));
  }
  int64_t per_block, blocks, bytes;
};

unsigned channel_blocks(const Conv2dSizes& s) { return static_cast<unsigned>((s.OC + 31) / 32); }

template <class Call>
void forward_direct(const Call& call) {
  constexpr int64_t most_blocks = 4096;
  constexpr bool pooled = pools<Call>;
  const Conv2dSizes& s = call.sizes;
  const DirectSizes sizes = DirectSizes::windows(s, pooled);
  const auto blocks = std::min<int64_t>((sizes.count + direct_warps - 1) / direct_warps, most_blocks);
  bool relu = true;
  uint8_t* winner = nullptr;
  if constexpr (pooled) {
    winner = call.winner.template mutable_data<uint8_t>();
  } else {
    relu = call.relu;
  }
  for_float_type(call.x.dtype(), [&]<class T>() {
    launch(s.C == 1 ? direct_forward_kernel<T, 1, pooled> : direct_forward_kernel<T, 3, pooled>,
           dim3(static_cast<unsigned>(blocks), channel_blocks(s)), block_threads, 0, compute_stream(), sizes, relu,
           call.x.template data<T>(), call.weight.template data<T>(),
           call.bias.defined() ? call.bias.template data<T>() : nullptr, call.y.template mutable_data<T>(), winner);
  });
}

template <class T>
PixelGradients<T, false> gradients_of(const Conv2dBackward& call) {
  return {call.dy.data<T>(), call.relu_y.defined() ? call.relu_y.data<T>() : nullptr};
}
template <class T>
PixelGradients<T, true> gradients_of(const Conv2dPoolReluBackward& call) {
  return {call.dy.data<T>(), call.winner.data<uint8_t>(), call.dy_factor};
}

template <class Call>
void backward_direct(const Call& call, Tensor& workspace) {
  constexpr bool pooled = pools<Call>;
  const Conv2dSizes& s = call.sizes;
  const DirectParts parts(s, pooled);
  const bool wants_weight = call.dweight.defined() || call.dbias.defined();
  float* partials = parts.blocks ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
  for_float_type(call.x.dtype(), [&]<class T>() {
    const auto gradients = gradients_of<T>(call);
    if (call.dx.defined()) {
      gather_input_gradient(s, gradients, call.weight.template data<T>(), call.dx.template mutable_data<T>());
    }
    if (!wants_weight) return;
    launch(s.C == 1 ? direct_weight_gradient_kernel<T, 1, pooled> : direct_weight_gradient_kernel<T, 3, pooled>,
           dim3(static_cast<unsigned>(parts.blocks), channel_blocks(s)), block_threads, 0, compute_stream(),
           DirectSizes::gradients(s, pooled), static_cast<int>(parts.per_block), call.x.template data<T>(), gradients,
           partials);
  });
  if (wants_weight) add_partials(partials, parts.blocks, call.accumulate, s.K(), s.OC, call.dweight, call.dbias);
}

template <class Call>
int64_t direct_workspace(const Call& call) {
  return DirectParts(call.sizes, pools<Call>).bytes;
}

REGISTER_KERNEL(conv2d_forward, cuda, "direct",
                {.run = forward_direct<Conv2dForward>, .supported = supports_direct<Conv2dForward>, .rank = 10});
REGISTER_KERNEL(conv2d_backward, cuda, "direct",
                {.run = backward_direct<Conv2dBackward>,
                 .supported = supports_direct<Conv2dBackward>,
                 .workspace = direct_workspace<Conv2dBackward>,
                 .rank = 10});
REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "direct",
                {.run = forward_direct<Conv2dPoolReluForward>,
                 .supported = supports_direct<Conv2dPoolReluForward>,
                 .rank = 10});
REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "direct",
                {.run = backward_direct<Conv2dPoolReluBackward>,
                 .supported = supports_direct<Conv2dPoolReluBackward>,
                 .workspace = direct_workspace<Conv2dPoolReluBackward>,
                 .rank = 10});

}  // namespace
}  // namespace hs
