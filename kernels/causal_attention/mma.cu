// causal_attention in 16 bits on tensor cores: variant "mma", the rung above causal_attention.cu. A block owns 64 rows
// (queries in forward and for dq, keys for dk and dv) and a warp 16 of them; rows of the other kind pass through shared
// memory, the next ones copied while these are multiplied. S, P, dP and dS exist only as sums in registers:
//
//   forward       dq                        dk and dv
//   S = q k'      S = q k'   dP = dy v'     S' = k q'      dP' = v dy'     both operands are rows in shared memory
//   y += P v      dq += dS k                dv += P' dy    dk += dS' q     the left one is in registers already
//
// What a lane has of a sum are the places that it needs of a left operand (kernels/cuda/mma.cuh), so P goes from one
// product into the next without another lane. There it must have 16 bits, and rounding it would cost as much as
// rounding y does. So it is split in two parts, the second being what the rounding of the first has lost, and
// multiplied twice.
//
// dS = P (dP - delta) cancels, so delta must be known before dS is rounded, and forward does not keep y. So dq's kernel
// goes through the keys twice, first for delta, the sum of P dP, which dk and dv need, too. Nothing is atomic.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/causal_attention/causal_attention.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/mma.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr unsigned whole_warp = 0xffffffffu;
constexpr int chunk = 8;                      // values in 16 bytes
constexpr int warp_rows = 16, own_rows = 64;  // of a warp, of a block
constexpr int threads = own_rows / warp_rows * 32;
constexpr int shared_limit = 48 << 10;  // bytes that a block gets without asking for more
constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f;

// Rows of the other kind that are multiplied at once. Two sets of two tiles of them (k and v, or q and dy) lie beside
// the `own` tiles of the block's rows. `width`: of a row in shared memory, D rounded up to 32, 64 or 128.
constexpr int streamed_rows(int width, int own) {
  return std::min(32, (shared_limit / 2 / width - own * own_rows) / 4);
}
constexpr size_t shared_bytes(int width, int own) {
  return static_cast<size_t>((own * own_rows + 4 * streamed_rows(width, own)) * width * 2);
}

// Of a multiprocessor: sets how many registers a thread may have. (The emulator does not read it.)
[[maybe_unused]] constexpr int blocks_at_once(int width) { return width == 32 ? 4 : 2; }

struct Sizes {
  int T, C, heads, D;
  float scale, exponent;  // 1 / sqrt(D); the same for powers of two: exp(scale S) = exp2(exponent S)
};

// Where the slice of this block (its x) begins in qkv or dqkv, in y or dy, and in log_sums or delta.
struct Slice {
  int64_t in_qkv, in_y, in_rows;
  __device__ __forceinline__ explicit Slice(const Sizes& s) {
    const int b = static_cast<int>(blockIdx.x) / s.heads, head = static_cast<int>(blockIdx.x) % s.heads;
    in_qkv = int64_t{b} * s.T * 3 * s.C + head * s.D;
    in_y = int64_t{b} * s.T * s.C + head * s.D;
    in_rows = int64_t{blockIdx.x} * s.T;
  }
};

// The position of a 16-byte chunk in a tile. ldmatrix reads one column of 8 rows at once. The chunks of a row are
// permuted, as in kernels/gemm/mma.cu, so that no two of these 8 are in the same memory banks.
template <int width>
constexpr int place(int row, int column) {
  return row * width + (column ^ (width == 32 ? row / 2 % 4 : row % 8)) * chunk;
}

// Starts copying rows first .. first + rows - 1 of (T, D), `stride` apart; zeros beyond T and D.
template <class T, int width, int rows>
__device__ __forceinline__ void copy_rows(const Sizes& s, const T* from, int stride, int first, SharedPointer<T> to) {
  constexpr int chunks = width / chunk, at_once = threads / chunks;
  const int column = static_cast<int>(threadIdx.x % chunks), above = static_cast<int>(threadIdx.x / chunks);
#pragma unroll
  for (int n = 0; n < rows / at_once; ++n) {
    const int row = n * at_once + above;
    const bool exists = first + row < s.T && column * chunk < s.D;
    cp_async_16(to + place<width>(row, column), exists ? from + int64_t{first + row} * stride + column * chunk : from,
                exists ? 16 : 0);
  }
}

// Calls body(row, tile of a, tile of b) for the rows begin .. end - 1 of two matrices, `rows` at a time from `row` on.
template <class T, int width, int rows, class Body>
__device__ __forceinline__ void stream_rows(const Sizes& s, const T* a, int a_stride, const T* b, int b_stride,
                                            int begin, int end, SharedPointer<T> memory, const Body& body) {
  constexpr int tile = rows * width;
  const auto start = [&](int row, int stage) {
    if (row < end) {
      copy_rows<T, width, rows>(s, a, a_stride, row, memory + 2 * stage * tile);
      copy_rows<T, width, rows>(s, b, b_stride, row, memory + (2 * stage + 1) * tile);
    }
    cp_async_commit();
  };
  start(begin, 0);
  int stage = 0;
  for (int row = begin; row < end; row += rows, stage ^= 1) {
    cp_async_wait<0>();  // this thread's share of these rows has arrived,
    __syncthreads();     // and those of the others; no thread still reads the rows before
    start(row + rows, stage ^ 1);
    body(row, memory + 2 * stage * tile, memory + (2 * stage + 1) * tile);
  }
}

// sum[0], of 8 columns, and sum[1], of the next 8, += a times what ldmatrix loaded for them.
template <class T>
__device__ __forceinline__ void multiply_16_columns(float (*sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
  mma_m16n8k16<Native<T>>(sum[0], a, first, sum[0]);
  mma_m16n8k16<Native<T>>(sum[1], a, second, sum[1]);
}

// sum (16, columns) = the products of 16 rows of a with `columns` rows of b.
template <class T, int width, int columns>
__device__ __forceinline__ void multiply_rows(SharedPointer<T> a, SharedPointer<T> b, float (&sum)[columns / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < columns / 2; ++i) sum[i / 4][i % 4] = 0;
#pragma unroll
  for (int k = 0; k < width / chunk; k += 2) {
    uint32_t a_part[4], b_part[4];
    ldmatrix_x4(a_part, a + place<width>(lane % 16, k + lane / 16));
#pragma unroll
    for (int n = 0; n < columns; n += 16) {
      ldmatrix_x4(b_part, b + place<width>(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2));
      multiply_16_columns<T>(sum + n / 8, a_part, b_part);
    }
  }
}

// Two numbers in 16 bits, the first in the lower half, and what that has lost of them.
template <class T>
__device__ __forceinline__ void split(float first, float second, uint32_t& high, uint32_t& low) {
  high = round_two<Native<T>>(first, second);
  const T a = {static_cast<uint16_t>(high)}, b = {static_cast<uint16_t>(high >> 16)};
  low = round_two<Native<T>>(first - to_f32(a), second - to_f32(b));
}

// sum (16, width) += weights (16, columns) times `columns` rows of b.
template <class T, int width, int columns>
__device__ __forceinline__ void add_rows(const float (&weights)[columns / 8][4], SharedPointer<T> b,
                                         float (&sum)[width / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < columns; k += 16) {
    uint32_t high[4], low[4], b_part[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&of_8)[4] = weights[k / 8 + i / 2];
      split<T>(of_8[i % 2 * 2], of_8[i % 2 * 2 + 1], high[i], low[i]);
    }
#pragma unroll
    for (int n = 0; n < width / 8; n += 2) {
      ldmatrix_x4_trans(b_part, b + place<width>(k + lane % 16, n + lane / 16));
      multiply_16_columns<T>(sum + n, high, b_part);
      multiply_16_columns<T>(sum + n, low, b_part);
    }
  }
}

// Sum over the four lanes that have a row.
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(whole_warp, value, 1);
  return value + __shfl_xor_sync(whole_warp, value, 2);
}

// Stores the warp's rows first .. first + 15 of (T, D), times a factor for either of a lane's two rows, 16 bytes at a
// time; `rows`: those of the warp in a tile of the block, which nothing reads any more.
template <class T, int width>
__device__ __forceinline__ void store_rows(const Sizes& s, const float (&sum)[width / 8][4], const float (&factor)[2],
                                           SharedPointer<T> rows, T* to, int stride, int first) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  __syncwarp();  // after the warp's last ldmatrix
#pragma unroll
  for (int n = 0; n < width / 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      store_vector(rows + place<width>(lane / 4 + 8 * r, n) + lane % 4 * 2,
                   round_two<Native<T>>(sum[n][2 * r] * factor[r], sum[n][2 * r + 1] * factor[r]));
    }
  }
  __syncwarp();
  constexpr int chunks = width / chunk, at_once = 32 / chunks;
#pragma unroll
  for (int n = 0; n < warp_rows / at_once; ++n) {
    const int row = n * at_once + lane / chunks, column = lane % chunks;
    if (first + row < s.T && column * chunk < s.D) {
      store_vector(to + int64_t{first + row} * stride + column * chunk,
                   load_vector<Pack<T, chunk>>(rows + place<width>(row, column)));
    }
  }
}

// Replaces the scores of one of a lane's two rows by exp(scale (S - largest)), 0 beyond the first `visible` columns
// from the lane's first on, and scales what was summed before by the new maximum.
template <int r, int keys, int width>
__device__ __forceinline__ void add_to_softmax(float exponent, int visible, float (&S)[keys / 8][4], float& largest,
                                               float& sum, float (&out)[width / 8][4]) {
  float most = largest, part = 0;
#pragma unroll
  for (int i = 0; i < keys / 4; ++i) {
    float& score = S[i / 2][2 * r + i % 2];
    if (i / 2 * 8 + i % 2 >= visible) score = -INFINITY;
    most = fmaxf(most, score);
  }
  most = fmaxf(most, __shfl_xor_sync(whole_warp, most, 1));
  most = fmaxf(most, __shfl_xor_sync(whole_warp, most, 2));
  const float factor = exp2f((largest - most) * exponent), offset = -most * exponent;
#pragma unroll
  for (int i = 0; i < keys / 4; ++i) {
    float& p = S[i / 2][2 * r + i % 2];
    p = exp2f(fmaf(p, exponent, offset));
    part += p;
  }
#pragma unroll
  for (int i = 0; i < width / 4; ++i) out[i / 2][2 * r + i % 2] *= factor;
  largest = most;
  sum = sum * factor + part;
}

// Grid: (slices, T / own_rows), blocks with the most keys first. Key 0 is in the first tile: each row has a maximum.
template <class T, int width>
__global__ void __launch_bounds__(threads, blocks_at_once(width))
    causal_attention_mma_forward_kernel(Previous previous, Sizes s, const T* qkv, float* log_sums, T* y) {
  previous.wait();
  constexpr int keys = streamed_rows(width, 1);
  const Slice slice(s);
  const int lane = static_cast<int>(threadIdx.x % 32), of_warp = static_cast<int>(threadIdx.x / 32) * warp_rows;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * own_rows, query = first + of_warp;
  const T* q = qkv + slice.in_qkv;
  const auto q_rows = dynamic_shared<T>();
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, out[width / 8][4] = {};
  copy_rows<T, width, own_rows>(s, q, 3 * s.C, first, q_rows);
  const auto add_keys = [&](int key, SharedPointer<T> k_rows, SharedPointer<T> v_rows) {
    if (key >= query + warp_rows) return;  // later than all of the warp's queries
    float S[keys / 8][4];
    multiply_rows<T, width, keys>(q_rows + of_warp * width, k_rows, S);
    const int visible = query + lane / 4 - key - lane % 4 * 2 + 1;
    add_to_softmax<0, keys, width>(s.exponent, visible, S, largest[0], sum[0], out);
    add_to_softmax<1, keys, width>(s.exponent, visible + 8, S, largest[1], sum[1], out);
    add_rows<T, width, keys>(S, v_rows, out);
  };
  stream_rows<T, width, keys>(s, q + s.C, 3 * s.C, q + 2 * s.C, 3 * s.C, 0, min(first + own_rows, s.T),
                              q_rows + own_rows * width, add_keys);
  const float total[2] = {row_sum(sum[0]), row_sum(sum[1])}, factor[2] = {1 / total[0], 1 / total[1]};
  store_rows<T, width>(s, out, factor, q_rows + of_warp * width, y + slice.in_y, s.C, query);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = query + lane / 4 + 8 * r;
    if (lane % 4 == 0 && i < s.T) {
      log_sums[slice.in_rows + i] = largest[r] * s.scale + log2f(total[r]) * ln_2;
    }
  }
}

// dq, and delta, (slices, T). Grid as the forward kernel's.
template <class T, int width>
__global__ void __launch_bounds__(threads, blocks_at_once(width))
    query_gradient_mma_kernel(Previous previous, Sizes s, const T* qkv, const float* log_sums, const T* dy,
                              float* delta, T* dqkv) {
  previous.wait();
  constexpr int keys = streamed_rows(width, 2);
  const Slice slice(s);
  const int lane = static_cast<int>(threadIdx.x % 32), of_warp = static_cast<int>(threadIdx.x / 32) * warp_rows;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * own_rows, query = first + of_warp;
  const T* q = qkv + slice.in_qkv;
  const auto q_rows = dynamic_shared<T>(), dy_rows = q_rows + own_rows * width;
  float log_sum[2], sum[2] = {}, dq[width / 8][4] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = query + lane / 4 + 8 * r;
    log_sum[r] = i < s.T ? log_sums[slice.in_rows + i] * log2_e : 0.0f;
  }
  copy_rows<T, width, own_rows>(s, q, 3 * s.C, first, q_rows);
  copy_rows<T, width, own_rows>(s, dy + slice.in_y, s.C, first, dy_rows);
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    const auto add_keys = [&](int key, SharedPointer<T> k_rows, SharedPointer<T> v_rows) {
      if (key >= query + warp_rows) return;  // later than all of the warp's queries
      float S[keys / 8][4], dP[keys / 8][4];
      multiply_rows<T, width, keys>(q_rows + of_warp * width, k_rows, S);
      multiply_rows<T, width, keys>(dy_rows + of_warp * width, v_rows, dP);
      const int visible = query + lane / 4 - key - lane % 4 * 2 + 1;
#pragma unroll
      for (int i = 0; i < keys / 2; ++i) {
        const int n = i / 4, e = i % 4, r = e / 2;
        const float p = exp2f(fmaf(S[n][e], s.exponent, -log_sum[r]));
        const float term = p * (pass == 0 ? dP[n][e] : dP[n][e] - sum[r]);
        S[n][e] = 8 * n + e % 2 < visible + 8 * r ? term : 0.0f;
        if (pass == 0) sum[r] += S[n][e];
      }
      if (pass == 1) add_rows<T, width, keys>(S, k_rows, dq);
    };
    __syncthreads();  // no thread still reads the keys of the first pass
    stream_rows<T, width, keys>(s, q + s.C, 3 * s.C, q + 2 * s.C, 3 * s.C, 0, min(first + own_rows, s.T),
                                dy_rows + own_rows * width, add_keys);
    if (pass == 0) {  // then they are delta
      sum[0] = row_sum(sum[0]);
      sum[1] = row_sum(sum[1]);
    }
  }
  store_rows<T, width>(s, dq, {s.scale, s.scale}, q_rows + of_warp * width, dqkv + slice.in_qkv, 3 * s.C, query);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = query + lane / 4 + 8 * r;
    if (lane % 4 == 0 && i < s.T) delta[slice.in_rows + i] = sum[r];
  }
}

// dk and dv. Grid: (slices, T / own_rows); S and dP have keys as rows and queries as columns.
template <class T, int width>
__global__ void __launch_bounds__(threads, blocks_at_once(width))
    key_gradient_mma_kernel(Previous previous, Sizes s, const T* qkv, const float* log_sums, const T* dy,
                            const float* delta, T* dqkv) {
  previous.wait();
  constexpr int queries = streamed_rows(width, 2);
  const Slice slice(s);
  const int lane = static_cast<int>(threadIdx.x % 32), of_warp = static_cast<int>(threadIdx.x / 32) * warp_rows;
  const int first = static_cast<int>(blockIdx.y) * own_rows, key = first + of_warp;
  const T* q = qkv + slice.in_qkv;
  const auto k_rows = dynamic_shared<T>(), v_rows = k_rows + own_rows * width;
  float dk[width / 8][4] = {}, dv[width / 8][4] = {};
  copy_rows<T, width, own_rows>(s, q + s.C, 3 * s.C, first, k_rows);
  copy_rows<T, width, own_rows>(s, q + 2 * s.C, 3 * s.C, first, v_rows);
  const auto add_queries = [&](int query, SharedPointer<T> q_rows, SharedPointer<T> dy_rows) {
    if (query + queries <= key) return;  // earlier than all of the warp's keys
    float log_sum[queries / 4], mean[queries / 4], S[queries / 8][4], dP[queries / 8][4];
#pragma unroll
    for (int i = 0; i < queries / 4; ++i) {
      const int at = query + i / 2 * 8 + lane % 4 * 2 + i % 2;
      log_sum[i] = at < s.T ? log_sums[slice.in_rows + at] * log2_e : INFINITY;  // P = 0 beyond T
      mean[i] = at < s.T ? delta[slice.in_rows + at] : 0.0f;
    }
    multiply_rows<T, width, queries>(k_rows + of_warp * width, q_rows, S);
    multiply_rows<T, width, queries>(v_rows + of_warp * width, dy_rows, dP);
    const int hidden = key + lane / 4 - query - lane % 4 * 2;  // columns, from the lane's first on
#pragma unroll
    for (int i = 0; i < queries / 2; ++i) {
      const int n = i / 4, e = i % 4, column = e % 2, of_query = 2 * n + column;
      const bool visible = 8 * n + column >= hidden + e / 2 * 8;
      const float p = exp2f(fmaf(S[n][e], s.exponent, -log_sum[of_query]));
      S[n][e] = visible ? p : 0.0f;
      dP[n][e] = visible ? p * (dP[n][e] - mean[of_query]) : 0.0f;
    }
    add_rows<T, width, queries>(S, dy_rows, dv);
    add_rows<T, width, queries>(dP, q_rows, dk);
  };
  stream_rows<T, width, queries>(s, q, 3 * s.C, dy + slice.in_y, s.C, first, s.T, v_rows + own_rows * width,
                                 add_queries);
  T* to = dqkv + slice.in_qkv;
  store_rows<T, width>(s, dk, {s.scale, s.scale}, k_rows + of_warp * width, to + s.C, 3 * s.C, key);
  store_rows<T, width>(s, dv, {1, 1}, v_rows + of_warp * width, to + 2 * s.C, 3 * s.C, key);
}

Sizes sizes_of(const AttentionSizes& size) {
  return {.T = static_cast<int>(size.T),
          .C = static_cast<int>(size.C),
          .heads = static_cast<int>(size.heads),
          .D = static_cast<int>(size.D),
          .scale = size.scale(),
          .exponent = size.scale() * log2_e};
}

dim3 grid_of(const AttentionSizes& size) {
  return dim3(static_cast<unsigned>(size.slices()), static_cast<unsigned>((size.T + own_rows - 1) / own_rows));
}

// Calls body.operator()<T, width>() with the type and the narrowest width that holds D.
template <class Body>
void for_width(DType dtype, int64_t D, const Body& body) {
  for_16_bits(dtype, [&]<class T>() {
    if (D <= 32) {
      body.template operator()<T, 32>();
    } else if (D <= 64) {
      body.template operator()<T, 64>();
    } else {
      body.template operator()<T, 128>();
    }
  });
}

void forward_mma(const CausalAttentionForward& call) {
  const AttentionSizes size(call.qkv, call.heads);
  for_width(call.qkv.dtype(), size.D, [&]<class T, int width>() {
    launch(causal_attention_mma_forward_kernel<T, width>, grid_of(size), threads, shared_bytes(width, 1),
           compute_stream(), sizes_of(size), call.qkv.data<T>(), call.log_sums.mutable_data<float>(),
           call.y.mutable_data<T>());
  });
}

void backward_mma(const CausalAttentionBackward& call, Tensor& workspace) {
  const AttentionSizes size(call.qkv, call.heads);
  float* delta = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const float* log_sums = call.log_sums.data<float>();
  for_width(call.qkv.dtype(), size.D, [&]<class T, int width>() {
    const T *qkv = call.qkv.data<T>(), *dy = call.dy.data<T>();
    T* dqkv = call.dqkv.mutable_data<T>();
    launch(query_gradient_mma_kernel<T, width>, grid_of(size), threads, shared_bytes(width, 2), compute_stream(),
           sizes_of(size), qkv, log_sums, dy, delta, dqkv);
    launch(key_gradient_mma_kernel<T, width>, grid_of(size), threads, shared_bytes(width, 2), compute_stream(),
           sizes_of(size), qkv, log_sums, dy, delta, dqkv);
  });
}

// T: the second dimension of a grid ends at 65535. Tensors are read and written 16 bytes at a time, rows are 3C apart.
template <class Call>
bool supports(const Call& call) {
  const AttentionSizes size(call.qkv, call.heads);
  return is_16_bit(call.qkv) && are_aligned(call.tensors()) && size.D % 16 == 0 && size.D <= 128 &&
         3 * size.C <= max_indices && size.T <= int64_t{65535} * own_rows;
}

// Two parts of bf16 lose up to 2^-17 of P and dS; see kernels/causal_attention/amx.h, which does the same.
constexpr double growth = 8;

REGISTER_KERNEL(
    causal_attention_forward, cuda, "mma",
    {.run = forward_mma, .supported = supports<CausalAttentionForward>, .rank = 10, .error_growth = growth});
REGISTER_KERNEL(causal_attention_backward, cuda, "mma",
                {.run = backward_mma,
                 .supported = supports<CausalAttentionBackward>,
                 .workspace =
                     [](const CausalAttentionBackward& call) {
                       return call.log_sums.size() * static_cast<int64_t>(sizeof(float));
                     },
                 .rank = 10,
                 .error_growth = growth});

}  // namespace
}  // namespace hs
