// Rung 2 of the gemm ladder. It adds reuse to naive.cu, on two levels.
// A block computes a 128 x 64 tile of C. It walks along K in steps of 16 and copies each step's tiles of op(A) and
// op(B) into shared memory once, so an element of A is read N / 64 times from global memory, not N times.
// A thread computes an 8 x 4 piece of the tile in registers: 12 values from shared memory make 32 products.
// Next: wmma.cu gives the products to the tensor cores.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

using cuda::GemmProblem;

constexpr int tile_m = 128, tile_n = 64, tile_k = 16;
constexpr int piece_m = 8, piece_n = 4;
constexpr int threads_n = tile_n / piece_n, threads = tile_m / piece_m * threads_n;
// Rows of the shared tiles are padded by 4 floats: threads that write down a column then have fewer bank conflicts, and
// rows still start at a multiple of 16 bytes.
constexpr int a_stride = tile_m + 4, b_stride = tile_n + 4;

using Four = cuda::Pack<float, 4>;

template <class In, class Out>
__global__ void __launch_bounds__(threads) gemm_tiled_kernel(GemmProblem<In, Out> g) {
  __shared__ SharedArray<float, tile_k * a_stride> a_tile;  // element (i, k) of the tile at k * a_stride + i
  __shared__ SharedArray<float, tile_k * b_stride> b_tile;  // element (k, j) at k * b_stride + j
  const auto [row, column] = cuda::tile_origin(g.N, tile_m, tile_n);
  const int piece_row = threadIdx.x / threads_n * piece_m, piece_column = threadIdx.x % threads_n * piece_n;

  float sum[piece_m][piece_n] = {};
  for (int64_t step = 0; step < g.K; step += tile_k) {
    cuda::load_tile<tile_m, tile_k, a_stride, threads>(a_tile.data(), g.a + row * g.a_row + step * g.a_k, g.a_row,
                                                       g.a_k, g.M - row, g.K - step);
    cuda::load_tile<tile_n, tile_k, b_stride, threads>(b_tile.data(), g.b + column * g.b_column + step * g.b_k,
                                                       g.b_column, g.b_k, g.N - column, g.K - step);
    __syncthreads();  // the tiles are complete
#pragma unroll
    for (int k = 0; k < tile_k; ++k) {
      const Four upper = load_vector<Four>(&a_tile[k * a_stride + piece_row]);
      const Four lower = load_vector<Four>(&a_tile[k * a_stride + piece_row + 4]);
      const Four b = load_vector<Four>(&b_tile[k * b_stride + piece_column]);
#pragma unroll
      for (int i = 0; i < piece_m; ++i) {
        const float a = i < 4 ? upper.value[i % 4] : lower.value[i % 4];
#pragma unroll
        for (int j = 0; j < piece_n; ++j) sum[i][j] = fmaf(a, b.value[j], sum[i][j]);
      }
    }
    __syncthreads();  // all have read them: the next step may overwrite them
  }

#pragma unroll
  for (int i = 0; i < piece_m; ++i) {
#pragma unroll
    for (int j = 0; j < piece_n; ++j) {
      const int64_t m = row + piece_row + i, n = column + piece_column + j;
      if (m < g.M && n < g.N) g.c[m * g.N + n] = cuda::gemm_element(g, m, n, sum[i][j]);
    }
  }
}

void gemm_tiled(const Gemm& call) {
  cuda::for_gemm_types(call, [&]<class In, class Out>() {
    const auto g = cuda::gemm_problem<In, Out>(call);
    cuda::launch(gemm_tiled_kernel<In, Out>, cuda::gemm_blocks(g.M, g.N, tile_m, tile_n), threads, 0,
                 cuda::compute_stream(), g);
  });
}

bool gemm_tiled_supported(const Gemm& call) {
  return cuda::gemm_types_supported(call) && call.options.epilogue == Epilogue::none;
}

REGISTER_KERNEL(gemm, cuda, "tiled", {.run = gemm_tiled, .supported = gemm_tiled_supported, .rank = 10});

}  // namespace
}  // namespace hs
