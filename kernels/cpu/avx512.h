// Helpers for the kernels that are compiled for AVX-512 function by function. x86-64 CPU files only.
#pragma once

#include <immintrin.h>

#include "engine/cpu_features.h"

namespace hs {

// 16 values rounded to bf16, in the lower halves of 32 bits. In integer arithmetic, because the AVX-512 BF16
// instruction treats subnormals as zero.
HS_TARGET_AVX512 inline __m512i rounded_to_bf16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_srli_epi32(rounded, 16);
}

}  // namespace hs
