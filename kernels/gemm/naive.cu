// Rung 1 of the gemm ladder: one thread for each element of C walks along a row of op(A) and a column of op(B).
// The lanes of a warp have 32 consecutive columns of one row: they read the same element of A, 32 neighbours of B, and
// the ReLU mask of the warp is the 32 bits of one vote. Each element of A is read N times from global memory, each of B
// M times; the next rungs avoid that. It supports every call, plainly, and the other variants are checked against
// it. Next: tiled.cu.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

using cuda::GemmProblem;

constexpr int warp = 32, warps = 8;

// The mask has bit j % 8 of byte j / 8 of a row for column j; the bits beyond N, up to the end of the row, are zero.
template <class In, class Out>
__global__ void gemm_naive_kernel(GemmProblem<In, Out> g, Epilogue epilogue, uint8_t* mask, const uint8_t* saved_mask,
                                  int64_t mask_row, int64_t column_blocks) {
  const int64_t row = blockIdx.x / column_blocks * warps + threadIdx.y;
  const int64_t column = blockIdx.x % column_blocks * warp + threadIdx.x;
  if (row >= g.M) return;  // the whole warp
  const bool inside = column < g.N;

  Out value = {};
  if (inside) {
    float sum = 0;
    for (int64_t k = 0; k < g.K; ++k) {
      sum = fmaf(cuda::to_f32(g.a[row * g.a_row + k * g.a_k]), cuda::to_f32(g.b[k * g.b_k + column * g.b_column]), sum);
    }
    value = cuda::gemm_element(g, row, column, sum);
  }
  bool keep = true;
  if (epilogue == Epilogue::relu) {
    keep = inside && !(cuda::to_f32(value) <= 0);  // NaN is kept
    const unsigned bits = __ballot_sync(0xffffffffu, keep);
    if (threadIdx.x < 4) {
      mask[row * mask_row + column / warp * 4 + threadIdx.x] = static_cast<uint8_t>(bits >> 8 * threadIdx.x);
    }
  } else if (epilogue == Epilogue::relu_backward && inside) {
    keep = saved_mask[row * mask_row + column / 8] >> column % 8 & 1;
  }
  if (inside) g.c[row * g.N + column] = keep ? value : Out{};
}

// sum[j] = C[0, j] + C[1, j] + ...: every 32nd row in a thread, then a tree over the 32 threads of a column. Added in
// double, as on the CPU, because M may be large.
template <class T>
__global__ void column_sums(int64_t M, int64_t N, const T* c, T* sum) {
  __shared__ SharedArray<double, warp * warp> partial;
  const int64_t column = int64_t{blockIdx.x} * warp + threadIdx.x;
  const int mine = threadIdx.y * warp + threadIdx.x;
  double total = 0;
  if (column < N) {
    for (int64_t row = threadIdx.y; row < M; row += warp) total += cuda::to_f32(c[row * N + column]);
  }
  partial[mine] = total;
  __syncthreads();
  for (unsigned half = warp / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      const double other = partial[mine + half * warp];
      partial[mine] += other;
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < N) {
    total = partial[mine];
    sum[column] = cuda::from_f32<T>(static_cast<float>(total));
  }
}

}  // namespace

template <class T>
void gemm_column_sums(int64_t M, int64_t N, const T* c, T* sum) {
  cuda::launch(column_sums<T>, cuda::gemm_blocks(1, N, 1, warp), dim3(warp, warp), 0, cuda::compute_stream(), M, N, c,
               sum);
}
template void gemm_column_sums(int64_t, int64_t, const float*, float*);
template void gemm_column_sums(int64_t, int64_t, const Half*, Half*);
template void gemm_column_sums(int64_t, int64_t, const BFloat16*, BFloat16*);

void gemm_naive(const Gemm& call, int64_t row_begin, int64_t row_end) {
  const Epilogue epilogue = call.options.epilogue;
  cuda::for_gemm_types(call, [&]<class In, class Out>() {
    GemmProblem<In, Out> g = cuda::gemm_problem<In, Out>(call);
    const int64_t mask_row = gemm_mask_row(g.N);
    uint8_t* mask = nullptr;
    const uint8_t* saved_mask = nullptr;
    if (epilogue == Epilogue::relu) mask = call.mask.mutable_data<uint8_t>() + row_begin * mask_row;
    if (epilogue == Epilogue::relu_backward) saved_mask = call.saved_mask.data<uint8_t>() + row_begin * mask_row;
    g.a += row_begin * g.a_row;
    g.c += row_begin * g.N;
    g.M = row_end - row_begin;
    const int64_t columns = epilogue == Epilogue::relu ? mask_row * 8 : g.N;
    cuda::launch(gemm_naive_kernel<In, Out>, cuda::gemm_blocks(g.M, columns, warps, warp), dim3(warp, warps), 0,
                 cuda::compute_stream(), g, epilogue, mask, saved_mask, mask_row, (columns + warp - 1) / warp);
    if (epilogue != Epilogue::relu_backward) return;
    gemm_column_sums<Out>(g.M, g.N, g.c, call.bias_gradient.mutable_data<Out>());
  });
}

namespace {

void gemm_naive_all(const Gemm& call) { gemm_naive(call, 0, call.c.shape()[0]); }

REGISTER_KERNEL(gemm, cuda, "naive",
                {.run = gemm_naive_all, .supported = cuda::gemm_types_supported, .rank = 0, .layout = "rows"});

}  // namespace
}  // namespace hs
