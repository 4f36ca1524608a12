// Shared by the CUDA variants of gemm: the problem with its four transpositions, which block computes which tile of C,
// how an element of C is stored, and the simple way to load a tile. .cu files only.
//
// The ladder, in reading order; each file says what it adds to the previous one:
//   1 naive.cu      one thread per element of C
//   2 tiled.cu      tiles in shared memory, a piece of C in the registers of each thread
//   3 wmma.cu       tensor cores, through nvcuda::wmma
//   4 mma.cu        tensor cores by instruction, and copies that overlap with them
//   5 cublaslt.cu   NVIDIA's library
// Rungs 2 to 4 compute products only; unfused.cu puts the epilogues behind them. narrow.cu is for the logits of a
// batch.
#pragma once

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {

// The variant "naive", only for the rows row_begin .. row_end - 1 of C and of the mask; the bias gradient is the sum
// over these rows. Other variants are checked against it.
void gemm_naive(const Gemm& call, int64_t row_begin, int64_t row_end);

// The variant "unfused". The derivative of ReLU takes its zeros from call.relu_output, if that is defined.
void gemm_unfused(const Gemm& call);

// sum[j] = C[0, j] + C[1, j] + ..., of the first M rows, on the device.
template <class T>
void gemm_column_sums(int64_t M, int64_t N, const T* c, T* sum);

namespace cuda {

// C = alpha * op(A) op(B) + beta * C + bias. A transposition is a pair of strides: element (i, k) of op(A) is
// a[i * a_row + k * a_k], element (k, j) of op(B) is b[k * b_k + j * b_column]. One of the two strides is 1.
template <class In, class Out>
struct GemmProblem {
  const In* a;
  const In* b;
  const Out* bias;  // (N) or nullptr
  Out* c;           // (M, N)
  int64_t M, N, K;
  int64_t a_row, a_k, b_k, b_column;
  float alpha, beta;
};

template <class In, class Out>
GemmProblem<In, Out> gemm_problem(const Gemm& call) {
  const GemmOptions& options = call.options;
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[options.transpose_a ? 0 : 1];
  return {.a = call.a.data<In>(),
          .b = call.b.data<In>(),
          .bias = call.bias.defined() ? call.bias.data<Out>() : nullptr,
          .c = call.c.mutable_data<Out>(),
          .M = M,
          .N = N,
          .K = K,
          .a_row = options.transpose_a ? 1 : K,
          .a_k = options.transpose_a ? M : 1,
          .b_k = options.transpose_b ? 1 : N,
          .b_column = options.transpose_b ? K : 1,
          .alpha = options.alpha,
          .beta = options.beta};
}

inline bool gemm_types_supported(const Gemm& call) {
  return is_float_or_narrower(call.c, call.a) && call.b.dtype() == call.a.dtype() &&
         (!call.bias.defined() || call.bias.dtype() == call.c.dtype());
}

// Calls body.operator()<In, Out>(). REQUIRES: gemm_types_supported
template <class Body>
void for_gemm_types(const Gemm& call, const Body& body) {
  for_float_type(call.c, call.a, [&]<class Out, class In>() { body.template operator()<In, Out>(); });
}

// The same for variants that support only f16 and bf16.
template <class Body>
void for_16_bit_gemm_types(const Gemm& call, const Body& body) {
  for_gemm_types(call, [&]<class In, class Out>() {
    if constexpr (!std::is_same_v<In, float>) body.template operator()<In, Out>();
  });
}

// C is cut into tiles, one for each block, row after row. One-dimensional grids, because only they may have more than
// 65535 blocks.
inline unsigned gemm_blocks(int64_t M, int64_t N, int tile_m, int tile_n) {
  return static_cast<unsigned>((M + tile_m - 1) / tile_m * ((N + tile_n - 1) / tile_n));
}
struct TileOrigin {
  int64_t row, column;
};
__device__ __forceinline__ TileOrigin tile_origin(int64_t N, int tile_m, int tile_n) {
  const int64_t tiles = (N + tile_n - 1) / tile_n;
  return {blockIdx.x / tiles * tile_m, blockIdx.x % tiles * tile_n};
}

// The finished element of C, from its sum of products. With beta = 0 the old value is not read and may be anything.
template <class In, class Out>
__device__ __forceinline__ Out gemm_element(const GemmProblem<In, Out>& g, int64_t row, int64_t column, float sum) {
  float value = g.alpha * sum;
  if (g.beta != 0) value += g.beta * to_f32(g.c[row * g.N + column]);
  if (g.bias) value += to_f32(g.bias[column]);
  return from_f32<Out>(value);
}

// tile[k * stride + i] = x[i * i_stride + k * k_stride], and 0 where i >= i_left or k >= k_left, for i < size and
// k < depth. All threads of the block take part; neighbours read neighbouring addresses, whichever stride is 1.
template <int size, int depth, int stride, int threads, class Element, class T>
__device__ __forceinline__ void load_tile(SharedPointer<Element> tile, const T* x, int64_t i_stride, int64_t k_stride,
                                          int64_t i_left, int64_t k_left) {
  static_assert(size * depth % threads == 0);
#pragma unroll
  for (int e = threadIdx.x; e < size * depth; e += threads) {
    const int i = k_stride == 1 ? e / depth : e % size;
    const int k = k_stride == 1 ? e % depth : e / size;
    T value = {};
    if (i < i_left && k < k_left) value = x[i * i_stride + k * k_stride];
    if constexpr (std::is_same_v<T, Element>) {
      tile[k * stride + i] = value;
    } else {
      tile[k * stride + i] = to_f32(value);
    }
  }
}

}  // namespace cuda
}  // namespace hs
