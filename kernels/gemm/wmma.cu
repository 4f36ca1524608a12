// Rung 3 of the gemm ladder. It adds tensor cores to tiled.cu, for f16 and bf16.
// Tiles are in shared memory as before, now with 16-bit values. A warp, not a thread, owns a 32 x 32 piece of the tile
// of C as four "fragments" of 16 x 16, whose elements are spread over its lanes in an order that CUDA does not specify.
// One mma_sync is 4096 products, added in f32. As the order is unknown, C goes through shared memory at the end.
// Next: mma.cu knows the order, and copies the next tiles while it computes.
#include <cuda_runtime.h>
#include <mma.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

namespace wmma = nvcuda::wmma;
using cuda::GemmProblem;

constexpr int tile_m = 128, tile_n = 64, tile_k = 32;
constexpr int edge = 16;         // of a fragment
constexpr int piece = 2 * edge;  // of a warp
constexpr int warps_n = tile_n / piece, warps = tile_m / piece * warps_n, threads = 32 * warps;
constexpr int a_stride = tile_m + 8, b_stride = tile_n + 8;  // padded as in tiled.cu; wmma requires multiples of 8

template <class In, class Out>
__global__ void __launch_bounds__(threads) gemm_wmma_kernel(GemmProblem<In, Out> g) {
  using Number = cuda::Native<In>;
  __shared__ SharedArray<In, tile_k * a_stride> a_tile;  // element (i, k) of the tile at k * a_stride + i: by columns
  __shared__ SharedArray<In, tile_k * b_stride> b_tile;  // element (k, j) at k * b_stride + j: by rows
  __shared__ SharedArray<float, warps * edge * edge> c_tile;
  const auto [row, column] = cuda::tile_origin(g.N, tile_m, tile_n);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece_row = warp / warps_n * piece, piece_column = warp % warps_n * piece;

  wmma::fragment<wmma::accumulator, edge, edge, edge, float> sum[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
  for (int64_t step = 0; step < g.K; step += tile_k) {
    cuda::load_tile<tile_m, tile_k, a_stride, threads>(a_tile.data(), g.a + row * g.a_row + step * g.a_k, g.a_row,
                                                       g.a_k, g.M - row, g.K - step);
    cuda::load_tile<tile_n, tile_k, b_stride, threads>(b_tile.data(), g.b + column * g.b_column + step * g.b_k,
                                                       g.b_column, g.b_k, g.N - column, g.K - step);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile_k; k += edge) {
      wmma::fragment<wmma::matrix_a, edge, edge, edge, Number, wmma::col_major> a[2];
      wmma::fragment<wmma::matrix_b, edge, edge, edge, Number, wmma::row_major> b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto a_piece = shared_cast<const Number>(&a_tile[k * a_stride + piece_row + i * edge]);
        const auto b_piece = shared_cast<const Number>(&b_tile[k * b_stride + piece_column + i * edge]);
        wmma::load_matrix_sync(a[i], a_piece, a_stride);
        wmma::load_matrix_sync(b[i], b_piece, b_stride);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], a[i / 2], b[i % 2], sum[i / 2][i % 2]);
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto own = c_tile.data() + warp * edge * edge;  // each warp has its own place: no block barrier
    wmma::store_matrix_sync(own, sum[i / 2][i % 2], edge, wmma::mem_row_major);
    __syncwarp();
#pragma unroll
    for (int e = lane; e < edge * edge; e += 32) {
      const int64_t m = row + piece_row + i / 2 * edge + e / edge, n = column + piece_column + i % 2 * edge + e % edge;
      const float value = own[e];
      if (m < g.M && n < g.N) g.c[m * g.N + n] = cuda::gemm_element(g, m, n, value);
    }
    __syncwarp();
  }
}

void gemm_wmma(const Gemm& call) {
  cuda::for_16_bit_gemm_types(call, [&]<class In, class Out>() {
    const auto g = cuda::gemm_problem<In, Out>(call);
    cuda::launch(gemm_wmma_kernel<In, Out>, cuda::gemm_blocks(g.M, g.N, tile_m, tile_n), threads, 0,
                 cuda::compute_stream(), g);
  });
}

bool gemm_wmma_supported(const Gemm& call) {
  return cuda::gemm_types_supported(call) && call.a.dtype() != DType::f32 && call.options.epilogue == Epilogue::none;
}

REGISTER_KERNEL(gemm, cuda, "wmma", {.run = gemm_wmma, .supported = gemm_wmma_supported, .rank = 20});

}  // namespace
}  // namespace hs
