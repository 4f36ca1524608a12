// A warp per row, forward and for dx: lanes take every 32nd column, and the row's sums are trees over the lanes. The
// sums over rows, for dscale and dshift, are those of groups of rows first, which a second kernel adds in order.
#include "kernels/layer_norm/layer_norm.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr int warps = cuda::block_threads / 32;  // rows of a block

unsigned blocks_for_rows(int64_t R) { return cuda::blocks_for(R * 32); }

template <class T>
__global__ void layer_norm_forward_kernel(int64_t R, int64_t C, float epsilon, const T* x, const float* scale,
                                          const float* shift, float* rows, T* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto length = static_cast<float>(C);
  for (int64_t i = cuda::global_thread() / 32; i < R; i += int64_t{gridDim.x} * warps) {
    float sum = 0, distances = 0, squares = 0;
    for (int64_t c = lane; c < C; c += 32) sum += cuda::to_f32(x[i * C + c]);
    const float near = cuda::warp_sum(sum) / length;  // the mean, but for its rounding
    for (int64_t c = lane; c < C; c += 32) {
      const float distance = cuda::to_f32(x[i * C + c]) - near;
      distances += distance;
      squares += distance * distance;
    }
    const float rest = cuda::warp_sum(distances) / length, variance = cuda::warp_sum(squares) / length - rest * rest;
    const float r = 1 / sqrtf((variance < 0 ? 0.0f : variance) + epsilon);  // a NaN stays
    for (int64_t c = lane; c < C; c += 32) {
      const float n = (cuda::to_f32(x[i * C + c]) - near - rest) * r;
      y[i * C + c] = cuda::from_f32<T>(n * scale[c] + (shift != nullptr ? shift[c] : 0.0f));
    }
    if (lane != 0) continue;
    rows[2 * i] = near + rest;
    rows[2 * i + 1] = r;
  }
}

void forward_cuda(const LayerNormForward& call) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(layer_norm_forward_kernel<T>, blocks_for_rows(R), cuda::block_threads, 0, cuda::compute_stream(), R, C,
                 call.epsilon, call.x.data<T>(), call.scale.data<float>(),
                 call.shift.defined() ? call.shift.data<float>() : nullptr, call.rows.mutable_data<float>(),
                 call.y.mutable_data<T>());
  });
}

template <class T>
__global__ void input_gradient_kernel(int64_t R, int64_t C, const T* x, const float* scale, const float* rows,
                                      const T* dy, T* dx) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto length = static_cast<float>(C);
  for (int64_t i = cuda::global_thread() / 32; i < R; i += int64_t{gridDim.x} * warps) {
    const float mean = rows[2 * i], r = rows[2 * i + 1];
    float sum_g = 0, sum_gn = 0;
    for (int64_t c = lane; c < C; c += 32) {
      const float g = cuda::to_f32(dy[i * C + c]) * scale[c];
      sum_g += g;
      sum_gn += g * ((cuda::to_f32(x[i * C + c]) - mean) * r);
    }
    const float mean_g = cuda::warp_sum(sum_g) / length, mean_gn = cuda::warp_sum(sum_gn) / length;
    for (int64_t c = lane; c < C; c += 32) {
      const float g = cuda::to_f32(dy[i * C + c]) * scale[c], n = (cuda::to_f32(x[i * C + c]) - mean) * r;
      dx[i * C + c] = cuda::from_f32<T>(r * (g - mean_g - n * mean_gn));
    }
  }
}

// Grid: (columns / block_threads, groups of rows). A thread sums one column of one group. partial is (groups, 2, C).
template <class T>
__global__ void column_sums_kernel(int64_t R, int64_t C, const T* x, const float* rows, const T* dy, float* partial) {
  const int64_t c = cuda::global_thread(), group = blockIdx.y, groups = gridDim.y;
  if (c >= C) return;
  float dscale = 0, dshift = 0;
  for (int64_t i = group * R / groups; i < (group + 1) * R / groups; ++i) {
    const float d = cuda::to_f32(dy[i * C + c]);
    dscale += d * ((cuda::to_f32(x[i * C + c]) - rows[2 * i]) * rows[2 * i + 1]);
    dshift += d;
  }
  partial[group * 2 * C + c] = dscale;
  partial[group * 2 * C + C + c] = dshift;
}

// What is nullptr is not wanted.
__global__ void add_groups_kernel(int64_t groups, int64_t C, bool accumulate, const float* partial, float* dscale,
                                  float* dshift) {
  const int64_t c = cuda::global_thread();
  if (c >= C) return;
  float total_scale = 0, total_shift = 0;
  for (int64_t group = 0; group < groups; ++group) {
    total_scale += partial[group * 2 * C + c];
    total_shift += partial[group * 2 * C + C + c];
  }
  if (dscale != nullptr) dscale[c] = (accumulate ? dscale[c] : 0.0f) + total_scale;
  if (dshift != nullptr) dshift[c] = (accumulate ? dshift[c] : 0.0f) + total_shift;
}

// 32 rows each, up to 512 of them.
int64_t groups_of(int64_t R) { return std::clamp<int64_t>(R / 32, 1, 512); }

bool needs_sums(const LayerNormBackward& call) { return call.dscale.defined() || call.dshift.defined(); }

int64_t backward_workspace(const LayerNormBackward& call) {
  if (!needs_sums(call)) return 0;
  return groups_of(call.rows.shape()[0]) * 2 * call.x.shape().back() * static_cast<int64_t>(sizeof(float));
}

void backward_cuda(const LayerNormBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  const float* rows = call.rows.data<float>();
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    if (call.dx.defined()) {
      cuda::launch(input_gradient_kernel<T>, blocks_for_rows(R), cuda::block_threads, 0, cuda::compute_stream(), R, C,
                   x, call.scale.data<float>(), rows, dy, call.dx.mutable_data<T>());
    }
    if (!needs_sums(call)) return;
    float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
    const int64_t groups = groups_of(R);
    const auto blocks = static_cast<unsigned>((C + cuda::block_threads - 1) / cuda::block_threads);
    cuda::launch(column_sums_kernel<T>, dim3(blocks, static_cast<unsigned>(groups)), cuda::block_threads, 0,
                 cuda::compute_stream(), R, C, x, rows, dy, partial);
    cuda::launch(add_groups_kernel, blocks, cuda::block_threads, 0, cuda::compute_stream(), groups, C, call.accumulate,
                 partial, call.dscale.defined() ? call.dscale.mutable_data<float>() : nullptr,
                 call.dshift.defined() ? call.dshift.mutable_data<float>() : nullptr);
  });
}

REGISTER_KERNEL(layer_norm_forward, cuda, "simple",
                {.run = forward_cuda,
                 .supported = [](const LayerNormForward& call) { return cuda::is_float(call.x); }});
REGISTER_KERNEL(layer_norm_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const LayerNormBackward& call) { return cuda::is_float(call.x); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
