// As many lanes of a warp as a row has packs of 16 bytes share the row, up to 32, and its sums are trees over these
// lanes. Where a row is no longer than that, one kernel computes all gradients, because the sums over rows, for dscale
// and dshift, read the same numbers: a thread keeps its columns, as kernels/cuda/columns.cuh divides them.
#include "kernels/layer_norm/layer_norm.h"

#include <cuda_runtime.h>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

using cuda::ColumnGroups, cuda::ColumnPart, cuda::Floats;

__device__ unsigned groups_done[cuda::max_column_blocks];  // 0 between launches, which run one at a time

template <class T, class Y, int N>
__global__ void layer_norm_forward_kernel(cuda::Previous previous, int64_t R, int64_t C, int lanes, float epsilon,
                                          const T* x, const float* scale, const float* shift, float* rows, Y* y) {
  previous.wait();
  const int64_t begin = static_cast<int>(threadIdx.x) % lanes * N, step = lanes * N;
  const auto length = static_cast<float>(C);
  // Every thread does every round, because collectives need whole warps; without a row left, it repeats the last row.
  for (int64_t first = 0; first < R; first += cuda::rows_at_once(lanes)) {
    const int64_t own = first + cuda::row_of_thread(lanes), i = min(own, R - 1);
    float sum = 0, distances = 0, squares = 0;
    for (int64_t c = begin; c < C; c += step) {
      const Floats<N> value = cuda::load<N>(x + i * C + c);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += value[j];
    }
    const float near = cuda::row_sum(sum, lanes) / length;  // the mean, but for its rounding
    for (int64_t c = begin; c < C; c += step) {
      const Floats<N> value = cuda::load<N>(x + i * C + c);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float distance = value[j] - near;
        distances += distance;
        squares += distance * distance;
      }
    }
    const float rest = cuda::row_sum(distances, lanes) / length;
    const float variance = cuda::row_sum(squares, lanes) / length - rest * rest;
    const float r = 1 / sqrtf((variance < 0 ? 0.0f : variance) + epsilon);  // a NaN stays
    if (own >= R) continue;
    for (int64_t c = begin; c < C; c += step) {
      Floats<N> value = cuda::load<N>(x + i * C + c), offset = {};
      const Floats<N> factor = cuda::load<N>(scale + c);
      if (shift != nullptr) offset = cuda::load<N>(shift + c);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = (value[j] - near - rest) * r * factor[j] + offset[j];
      cuda::store<Y>(value, y + i * C + c);
    }
    if (begin != 0) continue;
    rows[2 * i] = near + rest;
    rows[2 * i + 1] = r;
  }
}

void forward_cuda(const LayerNormForward& call) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  const float *scale = call.scale.data<float>(), *shift = call.shift.defined() ? call.shift.data<float>() : nullptr;
  cuda::for_float_type(call.x, call.y, [&]<class T, class Y>() {
    const T* x = call.x.data<T>();
    Y* y = call.y.mutable_data<Y>();
    const auto run = [&]<int N>() {
      const int lanes = cuda::lanes_for(C / N);
      cuda::launch(layer_norm_forward_kernel<T, Y, N>, cuda::blocks_for(R * lanes), cuda::block_threads, 0,
                   cuda::compute_stream(), R, C, lanes, call.epsilon, x, scale, shift, call.rows.mutable_data<float>(),
                   y);
    };
    cuda::for_pack_size<T>(C, run, x, scale, shift, y);
  });
}

// N columns of a row in backward.
template <int N>
struct RowPack {
  Floats<N> dy, n;  // n: x until normalize()
  float mean, r;
  template <class T, class Y>
  __device__ __forceinline__ static RowPack load(const T* x, const Y* dy, const float* row) {
    return {cuda::load<N>(dy), cuda::load<N>(x), row[0], row[1]};
  }
  // Adds the columns' g = dy * scale and g * n to the sums of the row.
  __device__ __forceinline__ void normalize(const Floats<N>& scale, float& sum_g, float& sum_gn) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      n[j] = (n[j] - mean) * r;
      sum_g += dy[j] * scale[j];
      sum_gn += dy[j] * scale[j] * n[j];
    }
  }
  template <class T>
  __device__ __forceinline__ void store_dx(const Floats<N>& scale, float mean_g, float mean_gn, T* dx) const {
    Floats<N> value;
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] = r * (dy[j] * scale[j] - mean_g - n[j] * mean_gn);
    cuda::store<T>(value, dx);
  }
};

template <class T, class Y, int N>
__global__ void input_gradient_kernel(cuda::Previous previous, int64_t R, int64_t C, int lanes, const T* x,
                                      const float* scales, const float* rows, const Y* dy, T* dx) {
  previous.wait();
  const int64_t begin = static_cast<int>(threadIdx.x) % lanes * N, step = lanes * N;
  for (int64_t first = 0; first < R; first += cuda::rows_at_once(lanes)) {  // every thread does every round
    const int64_t own = first + cuda::row_of_thread(lanes), i = min(own, R - 1);
    float sum_g = 0, sum_gn = 0, ignored = 0;
    for (int64_t c = begin; c < C; c += step) {
      auto pack = RowPack<N>::load(x + i * C + c, dy + i * C + c, rows + 2 * i);
      pack.normalize(cuda::load<N>(scales + c), sum_g, sum_gn);
    }
    const float mean_g = cuda::row_sum(sum_g, lanes) / static_cast<float>(C);
    const float mean_gn = cuda::row_sum(sum_gn, lanes) / static_cast<float>(C);
    for (int64_t c = begin; c < C && own < R; c += step) {
      auto pack = RowPack<N>::load(x + i * C + c, dy + i * C + c, rows + 2 * i);
      const Floats<N> scale = cuda::load<N>(scales + c);
      pack.normalize(scale, ignored, ignored);
      pack.store_dx(scale, mean_g, mean_gn, dx + i * C + c);
    }
  }
}

// partial is (groups, 2, C). What is nullptr is not wanted; dx only of rows that one block has whole.
template <class T, class Y, int N>
__global__ void __launch_bounds__(cuda::block_threads)
    layer_norm_backward_kernel(cuda::Previous previous, int64_t C, ColumnGroups groups, const T* x, const float* scales,
                               const float* rows, const Y* dy, float* partial, bool accumulate, float* dscale,
                               float* dshift, T* dx) {
  previous.wait();
  constexpr int at_once = 2;
  const ColumnPart<N> part(C, groups);
  const int64_t c = part.has_columns() ? part.c : 0;
  const Floats<N> scale = cuda::load<N>(scales + c);
  Floats<N> own[2] = {};
  // Every thread does every round, because collectives need whole warps; what it has no row or no columns for is zero.
  for (int64_t first = part.first + part.lane; first - part.lane < part.end; first += at_once * part.lanes) {
    RowPack<N> packs[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const int64_t i = min(first + k * part.lanes, part.end - 1);
      packs[k] = RowPack<N>::load(x + i * C + c, dy + i * C + c, rows + 2 * i);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const int64_t i = first + k * part.lanes;
      const bool valid = i < part.end && part.has_columns();
      float sum_g = 0, sum_gn = 0;
      packs[k].normalize(scale, sum_g, sum_gn);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        own[0][j] += valid ? packs[k].dy[j] * packs[k].n[j] : 0.0f;
        own[1][j] += valid ? packs[k].dy[j] : 0.0f;
      }
      if (dx == nullptr) continue;
      const float mean_g = cuda::row_sum(valid ? sum_g : 0.0f, part.width) / static_cast<float>(C);
      const float mean_gn = cuda::row_sum(valid ? sum_gn : 0.0f, part.width) / static_cast<float>(C);
      if (valid) packs[k].store_dx(scale, mean_g, mean_gn, dx + i * C + c);
    }
  }
  const auto totals = part.totals(own);
  if (!part.template join<2>(totals, partial, &groups_done[blockIdx.x])) return;
  if (dscale != nullptr) part.write(totals, 0, accumulate, dscale);
  if (dshift != nullptr) part.write(totals, 1, accumulate, dshift);
}

bool needs_sums(const LayerNormBackward& call) { return call.dscale.defined() || call.dshift.defined(); }

int64_t backward_workspace(const LayerNormBackward& call) {
  return needs_sums(call) ? cuda::column_workspace(call.rows.shape()[0], call.x.shape().back(), 2) : 0;
}

void backward_cuda(const LayerNormBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  const float *rows = call.rows.data<float>(), *scale = call.scale.data<float>();
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  float* dscale = call.dscale.defined() ? call.dscale.mutable_data<float>() : nullptr;
  float* dshift = call.dshift.defined() ? call.dshift.mutable_data<float>() : nullptr;
  cuda::for_float_type(call.x, call.dy, [&]<class T, class Y>() {
    const T* x = call.x.data<T>();
    const Y* dy = call.dy.data<Y>();
    T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    const auto run = [&]<int N>() {
      const bool at_once = needs_sums(call) && C / N <= 32;
      if (dx != nullptr && !at_once) {
        const int lanes = cuda::lanes_for(C / N);
        cuda::launch(input_gradient_kernel<T, Y, N>, cuda::blocks_for(R * lanes), cuda::block_threads, 0,
                     cuda::compute_stream(), R, C, lanes, x, scale, rows, dy, dx);
      }
      if (!needs_sums(call)) return;
      cuda::launch_columns(layer_norm_backward_kernel<T, Y, N>, R, C, N, x, scale, rows, dy, partial, call.accumulate,
                           dscale, dshift, at_once ? dx : nullptr);
    };
    cuda::for_pack_size<T>(C, run, x, scale, dy, partial, dx);
  });
}

REGISTER_KERNEL(layer_norm_forward, cuda, "simple",
                {.run = forward_cuda,
                 .supported = [](const LayerNormForward& call) { return cuda::is_float_or_narrower(call.x, call.y); }});
REGISTER_KERNEL(layer_norm_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const LayerNormBackward& call) { return cuda::is_float_or_narrower(call.x, call.dy); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
