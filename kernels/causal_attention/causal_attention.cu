// causal_attention on CUDA without T x T matrices: variant "streaming". A warp owns a row (a query in forward and for
// dq, a key for dk and dv) and a block 8 of them; tiles of 32 rows of the other kind pass through shared memory. In a
// tile, lane j first has the j-th product, S[i, j]; then lanes are columns of the sum, and the weights come by shuffle.
// Nothing is atomic: dk and dv have a kernel of their own, which computes S and dP again. Next: mma.cu.
#include "kernels/causal_attention/causal_attention.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr unsigned whole_warp = 0xffffffffu;
constexpr int tile = 32;                         // rows in shared memory, one per lane
constexpr int warps = cuda::block_threads / 32;  // rows of a block
constexpr int max_columns = 4;                   // of a lane: D is at most 128

struct Sizes {
  int64_t T, C, heads;
  int D;
  float scale;
};

// Where the slice of this block (its x) begins in qkv or dqkv, and in y or dy.
__device__ __forceinline__ int64_t in_qkv(const Sizes& s, int64_t slice) {
  return slice / s.heads * s.T * 3 * s.C + slice % s.heads * s.D;
}
__device__ __forceinline__ int64_t in_y(const Sizes& s, int64_t slice) {
  return slice / s.heads * s.T * s.C + slice % s.heads * s.D;
}

// Rows first .. first + count - 1 of (T, D), `stride` apart, into shared memory, `row` floats apart; zeros beyond T. A
// warp loads a row.
template <class T>
__device__ void load_rows(const Sizes& s, const T* from, int64_t stride, int64_t first, int count,
                          SharedPointer<float> to, int row) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = warp; r < count; r += warps) {
    for (int d = lane; d < s.D; d += 32) {
      to[r * row + d] = first + r < s.T ? cuda::to_f32(from[(first + r) * stride + d]) : 0.0f;
    }
  }
}

// The product of a row, the same for all lanes, with lane's row of a tile. A tile's rows are D + 1 floats apart: lanes
// then read different memory banks.
__device__ __forceinline__ float dot(int D, SharedPointer<const float> row, SharedPointer<const float> of_lane) {
  float sum = 0;
  for (int d = 0; d < D; ++d) sum += row[d] * of_lane[d];
  return sum;
}

// sum[c] += over the tile's rows j from begin to end - 1 of (lane j's weight) times the row's column lane + 32 c.
__device__ __forceinline__ void add_rows(int D, float weight, SharedPointer<const float> rows, int begin, int end,
                                         float (&sum)[max_columns]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int j = begin; j < end; ++j) {
    const float w = __shfl_sync(whole_warp, weight, j);
#pragma unroll
    for (int c = 0; c < max_columns; ++c) {
      const int d = lane + 32 * c;
      if (d < D) sum[c] += w * rows[j * (D + 1) + d];
    }
  }
}

template <class T>
__device__ __forceinline__ void store_row(int D, const float (&sum)[max_columns], float factor, T* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int c = 0; c < max_columns; ++c) {
    if (lane + 32 * c < D) to[lane + 32 * c] = cuda::from_f32<T>(sum[c] * factor);
  }
}

// Grid: (slices, T / warps). As every first key of a tile is at or before the block's first query, each row has a key
// in each tile.
template <class T>
__global__ void causal_attention_forward_kernel(cuda::Previous previous, Sizes s, const T* qkv, float* log_sums, T* y) {
  previous.wait();
  const int D = s.D, warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SharedPointer<float> q_rows = dynamic_shared<float>(), k_tile = q_rows + warps * D,
                             v_tile = k_tile + tile * (D + 1);
  const int64_t slice = blockIdx.x, first_query = int64_t{blockIdx.y} * warps, i = first_query + warp;
  const T* q = qkv + in_qkv(s, slice);
  load_rows(s, q, 3 * s.C, first_query, warps, q_rows, D);
  float largest = -INFINITY, sum = 0, out[max_columns] = {};
  for (int64_t key = 0; key < first_query + warps; key += tile) {
    __syncthreads();  // no thread still reads the tiles before
    load_rows(s, q + s.C, 3 * s.C, key, tile, k_tile, D + 1);
    load_rows(s, q + 2 * s.C, 3 * s.C, key, tile, v_tile, D + 1);
    __syncthreads();
    const float score = dot(D, q_rows + warp * D, k_tile + lane * (D + 1)) * s.scale;
    const bool visible = key + lane <= i;
    const float maximum = fmaxf(largest, cuda::warp_max(visible ? score : -INFINITY));
    const float p = visible ? expf(score - maximum) : 0.0f, factor = expf(largest - maximum);
    largest = maximum;
    sum = sum * factor + cuda::warp_sum(p);
#pragma unroll
    for (int c = 0; c < max_columns; ++c) out[c] *= factor;
    add_rows(D, p, v_tile, 0, static_cast<int>(min(int64_t{tile}, i + 1 - key)), out);
  }
  if (i >= s.T) return;
  store_row(D, out, 1 / sum, y + in_y(s, slice) + i * s.C);
  if (lane == 0) log_sums[slice * s.T + i] = largest + logf(sum);
}

// dq, and delta, (slices, T). Grid as the forward kernel's. Two passes over the keys: delta must be known for dS.
template <class T>
__global__ void query_gradient_kernel(cuda::Previous previous, Sizes s, const T* qkv, const float* log_sums,
                                      const T* dy, float* delta, T* dqkv) {
  previous.wait();
  const int D = s.D, warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SharedPointer<float> q_rows = dynamic_shared<float>(), dy_rows = q_rows + warps * D,
                             k_tile = dy_rows + warps * D, v_tile = k_tile + tile * (D + 1);
  const int64_t slice = blockIdx.x, first_query = int64_t{blockIdx.y} * warps, i = first_query + warp;
  const T* q = qkv + in_qkv(s, slice);
  load_rows(s, q, 3 * s.C, first_query, warps, q_rows, D);
  load_rows(s, dy + in_y(s, slice), s.C, first_query, warps, dy_rows, D);
  const float log_sum = i < s.T ? log_sums[slice * s.T + i] : 0.0f;
  float sum = 0, dq[max_columns] = {};
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t key = 0; key < first_query + warps; key += tile) {
      __syncthreads();  // no thread still reads the tiles before
      load_rows(s, q + s.C, 3 * s.C, key, tile, k_tile, D + 1);
      load_rows(s, q + 2 * s.C, 3 * s.C, key, tile, v_tile, D + 1);
      __syncthreads();
      const float score = dot(D, q_rows + warp * D, k_tile + lane * (D + 1)) * s.scale;
      const float dp = dot(D, dy_rows + warp * D, v_tile + lane * (D + 1));
      const float p = key + lane <= i ? expf(score - log_sum) : 0.0f;
      if (pass == 0) {
        sum += p * dp;
      } else {
        add_rows(D, p * (dp - sum), k_tile, 0, static_cast<int>(min(int64_t{tile}, i + 1 - key)), dq);
      }
    }
    if (pass == 0) sum = cuda::warp_sum(sum);  // delta of the row, in all lanes
  }
  if (i >= s.T) return;
  store_row(D, dq, s.scale, dqkv + in_qkv(s, slice) + i * 3 * s.C);
  if (lane == 0) delta[slice * s.T + i] = sum;
}

// dk and dv. Grid: (slices, T / warps); a warp has a key, and lanes are queries.
template <class T>
__global__ void __launch_bounds__(cuda::block_threads)
    key_gradient_kernel(cuda::Previous previous, Sizes s, const T* qkv, const float* log_sums, const T* dy,
                        const float* delta, T* dqkv) {
  previous.wait();
  const int D = s.D, warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SharedPointer<float> k_rows = dynamic_shared<float>(), v_rows = k_rows + warps * D, q_tile = v_rows + warps * D,
                             dy_tile = q_tile + tile * (D + 1);
  const int64_t slice = blockIdx.x, first_key = int64_t{blockIdx.y} * warps, j = first_key + warp;
  const T* q = qkv + in_qkv(s, slice);
  load_rows(s, q + s.C, 3 * s.C, first_key, warps, k_rows, D);
  load_rows(s, q + 2 * s.C, 3 * s.C, first_key, warps, v_rows, D);
  float dk[max_columns] = {}, dv[max_columns] = {};
  for (int64_t query = first_key / tile * tile; query < s.T; query += tile) {
    __syncthreads();  // no thread still reads the tiles before
    load_rows(s, q, 3 * s.C, query, tile, q_tile, D + 1);
    load_rows(s, dy + in_y(s, slice), s.C, query, tile, dy_tile, D + 1);
    __syncthreads();
    const int64_t i = query + lane;
    const bool visible = j <= i && i < s.T;
    const float score = dot(D, k_rows + warp * D, q_tile + lane * (D + 1)) * s.scale;
    const float dp = dot(D, v_rows + warp * D, dy_tile + lane * (D + 1));
    const float p = visible ? expf(score - log_sums[slice * s.T + i]) : 0.0f;
    const float ds = visible ? p * (dp - delta[slice * s.T + i]) : 0.0f;
    const int begin = static_cast<int>(max(int64_t{0}, j - query)),
              end = static_cast<int>(min(int64_t{tile}, s.T - query));
    add_rows(D, p, dy_tile, begin, end, dv);
    add_rows(D, ds, q_tile, begin, end, dk);
  }
  if (j >= s.T) return;
  T* to = dqkv + in_qkv(s, slice) + j * 3 * s.C;
  store_row(D, dk, s.scale, to + s.C);
  store_row(D, dv, 1.0f, to + 2 * s.C);
}

Sizes sizes_of(const AttentionSizes& size) {
  return {size.T, size.C, size.heads, static_cast<int>(size.D), size.scale()};
}

dim3 grid_of(const AttentionSizes& size) {
  return dim3(static_cast<unsigned>(size.slices()), static_cast<unsigned>((size.T + warps - 1) / warps));
}

// `rows` matrices (warps, D) and two tiles.
size_t shared_bytes(int64_t D, int64_t rows) {
  return static_cast<size_t>(rows * warps * D + 2 * tile * (D + 1)) * sizeof(float);
}

void forward_cuda(const CausalAttentionForward& call) {
  const AttentionSizes size(call.qkv, call.heads);
  cuda::for_float_type(call.qkv.dtype(), [&]<class T>() {
    cuda::launch(causal_attention_forward_kernel<T>, grid_of(size), cuda::block_threads, shared_bytes(size.D, 1),
                 cuda::compute_stream(), sizes_of(size), call.qkv.data<T>(), call.log_sums.mutable_data<float>(),
                 call.y.mutable_data<T>());
  });
}

void backward_cuda(const CausalAttentionBackward& call, Tensor& workspace) {
  const AttentionSizes size(call.qkv, call.heads);
  float* delta = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const float* log_sums = call.log_sums.data<float>();
  cuda::for_float_type(call.qkv.dtype(), [&]<class T>() {
    const T *qkv = call.qkv.data<T>(), *dy = call.dy.data<T>();
    T* dqkv = call.dqkv.mutable_data<T>();
    cuda::launch(query_gradient_kernel<T>, grid_of(size), cuda::block_threads, shared_bytes(size.D, 2),
                 cuda::compute_stream(), sizes_of(size), qkv, log_sums, dy, delta, dqkv);
    cuda::launch(key_gradient_kernel<T>, grid_of(size), cuda::block_threads, shared_bytes(size.D, 2),
                 cuda::compute_stream(), sizes_of(size), qkv, log_sums, dy, delta, dqkv);
  });
}

// D: what a lane's columns and 48 KiB of shared memory hold. T: the second dimension of a grid ends at 65535.
template <class Call>
bool supports(const Call& call) {
  const AttentionSizes size(call.qkv, call.heads);
  return cuda::is_float(call.qkv) && size.D <= 32 * max_columns && size.T <= int64_t{65535} * warps;
}

REGISTER_KERNEL(causal_attention_forward, cuda, "streaming",
                {.run = forward_cuda, .supported = supports<CausalAttentionForward>});
REGISTER_KERNEL(causal_attention_backward, cuda, "streaming",
                {.run = backward_cuda,
                 .supported = supports<CausalAttentionBackward>,
                 .workspace = [](const CausalAttentionBackward& call) {
                   return call.log_sums.size() * static_cast<int64_t>(sizeof(float));
                 }});

}  // namespace
}  // namespace hs
