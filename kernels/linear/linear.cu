// The gradients of a linear layer with few outputs, as the last one of a classifier has, and few rows, in one launch.
// By matrix products they would be three kernels, each of which reads dy, and two of which a library computes with
// tiles that are mostly empty. Here a lane is a column of x:
//
//    dy (N, 16)    in shared memory, filled up with zeros; every lane reads the same row at once
//    w (16)        the column's weights, in registers      dx[n, column] = sum over o of dy[n, o] * w[o]
//    sum (16)      dweight's row, in registers             sum[o]       += x[n, column] * dy[n, o]
//
// A warp takes every 8th row of x, and the 8 warps of a block meet in shared memory, in a fixed tree. x is read once
// and dx written once, 32 neighbouring columns at a time.
// Previous: engine/cuda.cuh; SharedArray: kernels/cuda/shared.cuh.
#include "kernels/linear/linear.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"

namespace hs {
namespace {

constexpr int lanes = 32, warps = cuda::block_threads / lanes;
constexpr int max_outputs = 16, max_rows = 256, rows_ahead = 8;

// dbias[o] = the sum of column o: a warp for each, by the first block.
template <class Out>
__device__ void sum_columns(int rows, int outputs, SharedPointer<float> dy, bool accumulate, Out* dbias) {
  const int lane = threadIdx.x % lanes;
  for (int o = threadIdx.x / lanes; o < outputs; o += warps) {
    float sum = 0;
    for (int n = lane; n < rows; n += lanes) sum += dy[n * max_outputs + o];
    sum = cuda::warp_sum(sum);
    if (lane == 0) dbias[o] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(dbias[o]) : 0.0f) + sum);
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(cuda::block_threads)
    narrow_backward_kernel(cuda::Previous previous, int rows, int64_t in, int outputs, bool accumulate, const T* x,
                           const T* weight, const T* dy, T* dx, Out* dweight, Out* dbias) {
  previous.wait();
  __shared__ SharedArray<float, max_rows * max_outputs> dy_tile;
  __shared__ SharedArray<float, warps * lanes*(max_outputs + 1)> sums;  // one more: no bank conflicts
  using Row = cuda::Pack<float, 4>;
  const int thread = threadIdx.x, lane = thread % lanes, warp = thread / lanes;
  const int64_t column = int64_t{blockIdx.x} * lanes + lane;
  for (int i = thread; i < rows * max_outputs; i += cuda::block_threads) {
    const int n = i / max_outputs, o = i % max_outputs;
    dy_tile[i] = o < outputs ? cuda::to_f32(dy[n * outputs + o]) : 0.0f;
  }
  float w[max_outputs] = {}, sum[max_outputs] = {};
#pragma unroll
  for (int o = 0; o < max_outputs; ++o) {
    if (dx && o < outputs && column < in) w[o] = cuda::to_f32(weight[column * outputs + o]);
  }
  __syncthreads();
  for (int first = warp; first < rows && column < in; first += warps * rows_ahead) {
    float values[rows_ahead];  // a round trip to memory for all of them
#pragma unroll
    for (int i = 0; i < rows_ahead; ++i) {
      const int n = first + i * warps;
      values[i] = n < rows ? cuda::to_f32(x[n * in + column]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < rows_ahead; ++i) {
      const int n = first + i * warps;
      if (n >= rows) break;
      float product = 0;
#pragma unroll
      for (int quarter = 0; quarter < max_outputs / 4; ++quarter) {
        const Row g = load_vector<Row>(dy_tile.data() + (n * max_outputs + quarter * 4));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          product = fmaf(g.value[j], w[quarter * 4 + j], product);
          sum[quarter * 4 + j] = fmaf(values[i], g.value[j], sum[quarter * 4 + j]);
        }
      }
      if (dx) dx[n * in + column] = cuda::from_f32<T>(product);
    }
  }
  if (dbias && blockIdx.x == 0) sum_columns(rows, outputs, dy_tile.data(), accumulate, dbias);
  if (!dweight) return;
#pragma unroll
  for (int o = 0; o < max_outputs; ++o) sums[thread * (max_outputs + 1) + o] = sum[o];
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * lanes * outputs;
  for (int i = thread; i < lanes * outputs && first + i < in * outputs; i += cuda::block_threads) {
    float total[warps];
#pragma unroll
    for (int j = 0; j < warps; ++j) total[j] = sums[(j * lanes + i / outputs) * (max_outputs + 1) + i % outputs];
    const float all = ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    dweight[first + i] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(dweight[first + i]) : 0.0f) + all);
  }
}

void narrow_backward(const LinearBackward& call) {
  const int64_t in = call.x.shape()[1];
  const auto rows = static_cast<int>(call.x.shape()[0]), outputs = static_cast<int>(call.dy.shape()[1]);
  const Tensor& gradient = call.dweight.defined() ? call.dweight : call.dbias.defined() ? call.dbias : call.dx;
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const auto run = [&]<class Out>() {
      cuda::launch(narrow_backward_kernel<T, Out>, static_cast<unsigned>((in + lanes - 1) / lanes), cuda::block_threads,
                   0, cuda::compute_stream(), rows, in, outputs, call.accumulate, call.x.data<T>(),
                   call.weight.data<T>(), call.dy.data<T>(), call.dx.defined() ? call.dx.mutable_data<T>() : nullptr,
                   call.dweight.defined() ? call.dweight.mutable_data<Out>() : nullptr,
                   call.dbias.defined() ? call.dbias.mutable_data<Out>() : nullptr);
    };
    gradient.dtype() == DType::f32 ? run.template operator()<float>() : run.template operator()<T>();
  });
}

// More rows want matrix units, and more outputs more registers.
bool is_narrow(const LinearBackward& call) {
  const bool one_type = !call.dweight.defined() || !call.dbias.defined() || call.dweight.dtype() == call.dbias.dtype();
  return cuda::is_float(call.x) && one_type && call.order == WeightOrder::in_out && call.x.shape()[0] <= max_rows &&
         call.x.shape()[1] > 0 && call.x.shape()[1] <= max_indices && call.dy.shape()[1] <= max_outputs;
}

// No GPU has measured it yet, and until one has, a library's products are the default.
REGISTER_KERNEL(linear_backward, cuda, "narrow",
                {.run = narrow_backward, .supported = is_narrow, .rank = only_if_forced});

}  // namespace
}  // namespace hs
