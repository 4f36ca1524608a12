// The product of a last layer, few rows by few columns, such as 64 images by 10 classes: variant "narrow". A library's
// tile is 64 or 128 columns wide, and mostly empty here; and as the rows fill one tile, it cuts the depth in parts and
// adds them in a second kernel. Here a block computes a row of C: its threads share the depth, each keeps all columns'
// sums in registers, and they meet in a fixed tree, first in each warp, then in shared memory.
// Rung 4 of the ladder in gemm.cuh says what to do with more.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

using namespace cuda;

constexpr int max_columns = 16, max_rows = 256, warps = block_threads / 32;

template <class In, class Out>
__global__ void __launch_bounds__(block_threads) narrow_kernel(Previous previous, GemmProblem<In, Out> g) {
  previous.wait();
  __shared__ SharedArray<float, warps * max_columns> sums;
  const int thread = threadIdx.x, N = static_cast<int>(g.N);
  const int64_t row = blockIdx.x;
  float sum[max_columns] = {};
  for (int64_t k = thread; k < g.K; k += block_threads) {
    const float a = to_f32(g.a[row * g.K + k]);
#pragma unroll
    for (int j = 0; j < max_columns; ++j) {
      if (j < N) sum[j] = fmaf(a, to_f32(g.b[k * N + j]), sum[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < max_columns; ++j) {
    if (j >= N) break;
    const float total = warp_sum(sum[j]);
    if (thread % 32 == 0) sums[thread / 32 * max_columns + j] = total;
  }
  __syncthreads();
  if (thread >= N) return;
  float total[warps];
#pragma unroll
  for (int i = 0; i < warps; ++i) total[i] = sums[i * max_columns + thread];
  const float all = ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
  g.c[row * N + thread] = gemm_element(g, row, thread, all);
}

void gemm_narrow(const Gemm& call) {
  for_gemm_types(call, [&]<class In, class Out>() {
    launch(narrow_kernel<In, Out>, static_cast<unsigned>(call.c.shape()[0]), block_threads, 0, compute_stream(),
           gemm_problem<In, Out>(call));
  });
}

bool is_narrow(const Gemm& call) {
  const GemmOptions& options = call.options;
  return gemm_types_supported(call) && call.c.size() > 0 && call.c.shape()[0] <= max_rows &&
         call.c.shape()[1] <= max_columns && !options.transpose_a && !options.transpose_b &&
         options.epilogue == Epilogue::none;
}

// Below cuBLASLt: no GPU has measured the two side by side yet.
REGISTER_KERNEL(gemm, cuda, "narrow", {.run = gemm_narrow, .supported = is_narrow, .rank = 35});

}  // namespace
}  // namespace hs
