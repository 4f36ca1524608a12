// gemm for f16 with AVX-512 FP16, which multiplies and adds 32 numbers in f16, twice as many as in f32: see
// avx512_fp16.h for what that costs.
#include "kernels/gemm/avx512_fp16.h"

#include "engine/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace hs {
namespace {

using namespace blocked;

struct Halves {
  // The lower halves of 16 pairs.
  HS_TARGET_AVX512_FP16 static __m512 widened(__m512i pairs) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)); }

  // The sums of 16 pairs.
  HS_TARGET_AVX512_FP16 static __m512 folded(__m512h pairs) {
    const __m512h swapped = _mm512_castsi512_ph(_mm512_rol_epi32(_mm512_castph_si512(pairs), 16));
    return widened(_mm512_castph_si512(_mm512_add_ph(pairs, swapped)));
  }

  // sums[row][vector] = sum over steps of a[row][step] b[step][vector], in f16 as far as half_chain says.
  template <int rows, int vectors>
  HS_TARGET_AVX512_FP16 static void in_f16(Left a, const Cell* b, int64_t steps, __m512 (&sums)[rows][vectors]) {
    for (bool add = false; !add || steps > 0; steps -= half_chain, add = true) {
      __m512h sum[rows][vectors] = {};
      for (int64_t s = std::min(steps, half_chain); s > 0; --s, a.cells += a.step, b += tile_columns) {
        __m512h w[vectors];
        for (int v = 0; v < vectors; ++v) w[v] = _mm512_loadu_ph(b + v * 16);
        for (int r = 0; r < rows; ++r) {
          const __m512h x = _mm512_castsi512_ph(_mm512_set1_epi32(static_cast<int>(a.cells[r * a.row])));
          for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_fmadd_ph(x, w[v], sum[r][v]);
        }
      }
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < vectors; ++v) {
          sums[r][v] = add ? _mm512_add_ps(sums[r][v], folded(sum[r][v])) : folded(sum[r][v]);
        }
      }
    }
  }

  // The same in f32.
  template <int rows, int vectors>
  HS_TARGET_AVX512_FP16 static void in_f32(const Left& a, const Cell* b, int64_t steps, __m512 (&sums)[rows][vectors]) {
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        __m512 sum = {};
        for (int64_t s = 0; s < steps; ++s) {
          const __m512i x = _mm512_set1_epi32(static_cast<int>(a.cells[r * a.row + s * a.step]));
          const __m512i w = _mm512_loadu_si512(b + s * tile_columns + v * 16);
          sum = _mm512_fmadd_ps(widened(x), widened(w), sum);
          sum = _mm512_fmadd_ps(widened(_mm512_srli_epi32(x, 16)), widened(_mm512_srli_epi32(w, 16)), sum);
        }
        sums[r][v] = sum;
      }
    }
  }

  template <int rows, int vectors>
  HS_TARGET_AVX512_FP16 static void multiply(Left a, const Cell* b, int64_t steps, float* to, bool add) {
    __m512 sums[rows][vectors];
    in_f16(a, b, steps, sums);
    __m512 zero = {};  // NaN, if a sum is not finite
    for (const auto& row : sums) {
      for (const __m512 sum : row) zero = _mm512_fmadd_ps(sum, _mm512_setzero_ps(), zero);
    }
    if (_mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q) != 0) in_f32(a, b, steps, sums);
    for (int r = 0; r < rows; ++r, to += tile_columns) {
      for (int v = 0; v < vectors; ++v) {
        _mm512_storeu_ps(to + v * 16, add ? _mm512_add_ps(_mm512_loadu_ps(to + v * 16), sums[r][v]) : sums[r][v]);
      }
    }
  }
};

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::f16 && is_same_or_f32(call.a, call.c) && cpu_features().avx512_fp16;
}

REGISTER_KERNEL(gemm, cpu, "avx512_fp16",
                {.run = gemm_blocked<HalfProduct<Halves>>,
                 .supported = supports,
                 .workspace = workspace<HalfProduct<Halves>>,
                 .rank = -1,
                 .layout = "rows",
                 .error_growth = half_growth});

}  // namespace
}  // namespace hs

#endif
