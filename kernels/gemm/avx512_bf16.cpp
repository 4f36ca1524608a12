// gemm for bf16 with AVX-512 BF16: vdpbf16ps multiplies 32 numbers in pairs and adds each pair of products to one of 16
// f32 sums. So the panels hold pairs along K.
#include "engine/cpu_features.h"
#include "kernels/gemm/blocked.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace hs {
namespace {

using namespace blocked;

struct DotProducts {
  // sums[row][vector] = sum over steps of a[row][step] b[step][vector], plus what it was if `add`.
  template <int rows, int vectors>
  HS_TARGET_AVX512_BF16 static void multiply(Left a, const Cell* b, int64_t steps, float* sums, bool add) {
    __m512 sum[rows][vectors] = {};
    for (int64_t s = 0; s < steps; ++s, a.cells += a.step, b += tile_columns) {
      __m512i w[vectors];
      for (int v = 0; v < vectors; ++v) w[v] = _mm512_loadu_si512(b + v * 16);
      for (int r = 0; r < rows; ++r) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(a.cells[r * a.row]));
        for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)x, (__m512bh)w[v]);
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        float* to = sums + r * tile_columns + v * 16;
        _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]) : sum[r][v]);
      }
    }
  }
};
using Paired = PairedStrips<BFloat16, DotProducts>;

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && cpu_features().avx512_bf16;
}

REGISTER_KERNEL(gemm, cpu, "avx512_bf16",
                {.run = gemm_blocked<Paired>,
                 .supported = supports,
                 .workspace = workspace<Paired>,
                 .rank = rank_of_bf16_pairs(5),
                 .layout = "rows"});

}  // namespace
}  // namespace hs

#endif
