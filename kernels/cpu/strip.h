// The product of a few rows with a panel, whose sums stay in registers: the innermost loops of gemm and attention.
// No `#pragma once`: a file that kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA
// part.

namespace hs::HS_ISA {

// c[row][vector] = sum over steps of a[row][step] b[step][vector], plus what it was if `add`. The steps of a may come
// in `runs` of that many, a_run floats from each other.
template <int rows, int vectors>
static inline void multiply_strip(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step,
                                  int64_t steps, float* c, int64_t c_row, bool add, int64_t runs = 1,
                                  int64_t a_run = 0) {
  Vec sum[rows][vectors];
  HS_UNROLL for (int r = 0; r < rows; ++r) { HS_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = Vec{}; }
  for (int64_t run = 0; run < runs; ++run, a += a_run) {
    const float* x = a;
    for (int64_t s = 0; s < steps; ++s, x += a_step, b += b_step) {
      Vec w[vectors];
      HS_UNROLL for (int v = 0; v < vectors; ++v) w[v] = load(b + v * lanes);
      HS_UNROLL for (int r = 0; r < rows; ++r) {
        const Vec factor = broadcast(x[r * a_row]);
        HS_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = fma(factor, w[v], sum[r][v]);
      }
    }
  }
  if (add) {
    HS_UNROLL for (int r = 0; r < rows; ++r) {
      HS_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] += load(c + r * c_row + v * lanes);
    }
  }
  HS_UNROLL for (int r = 0; r < rows; ++r) {
    HS_UNROLL for (int v = 0; v < vectors; ++v) store(c + r * c_row + v * lanes, sum[r][v]);
  }
}

}  // namespace hs::HS_ISA
