#include "kernels/cpu/convert.h"

#include "engine/cpu_features.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx512.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hs {
namespace {

#if defined(__x86_64__)

// Both return the number of elements converted, a multiple of 8.
HS_TARGET_F16C int64_t widen_f16c(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

HS_TARGET_F16C int64_t narrow_f16c(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}

[[gnu::target("avx2")]] int64_t widen_avx2(const BFloat16* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  return i;
}

// As rounded_to_bf16() does 16.
[[gnu::target("avx2")]] __m256i eight_rounded(const float* from) {
  const __m256 values = _mm256_loadu_ps(from);
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}

[[gnu::target("avx2")]] int64_t narrow_avx2(const float* from, BFloat16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_packus_epi32(eight_rounded(from + i), eight_rounded(from + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(halves, 0b11011000));
  }
  return i;
}

HS_TARGET_AVX512 int64_t widen_avx512(const BFloat16* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_si512(to + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  return i;
}

HS_TARGET_AVX512 int64_t narrow_avx512(const float* from, BFloat16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i rounded = rounded_to_bf16(_mm512_loadu_ps(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_cvtepi32_epi16(rounded));
  }
  return i;
}

// The instruction treats subnormals as zero, so a block that contains one takes the integer path.
HS_TARGET_AVX512_BF16 int64_t narrow_avx512_bf16(const float* from, BFloat16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512 values = _mm512_loadu_ps(from + i);
    if (_mm512_fpclass_ps_mask(values, 0x20) != 0) {
      narrow_avx512(from + i, to + i, 16);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), (__m256i)_mm512_cvtneps_pbh(values));
    }
  }
  return i;
}

#elif defined(__aarch64__)

// Every ARMv8 converts f16. Compilers make NEON of the loops for bf16 by themselves.
int64_t widen_neon(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from[i].bits))));
  }
  return i;
}

int64_t narrow_neon(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) vst1_u16(&to[i].bits, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
  return i;
}

#endif

}  // namespace

void widen(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().f16c) i = widen_f16c(from, to, count);
#elif defined(__aarch64__)
  i = widen_neon(from, to, count);
#endif
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

void narrow(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().f16c) i = narrow_f16c(from, to, count);
#elif defined(__aarch64__)
  i = narrow_neon(from, to, count);
#endif
  for (; i < count; ++i) to[i] = to_half(from[i]);
}

void widen(const BFloat16* from, float* to, int64_t count) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().avx512) {
    i = widen_avx512(from, to, count);
  } else if (cpu_features().avx2) {
    i = widen_avx2(from, to, count);
  }
#endif
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

void narrow(const float* from, BFloat16* to, int64_t count) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().avx512_bf16) {
    i = narrow_avx512_bf16(from, to, count);
  } else if (cpu_features().avx512) {
    i = narrow_avx512(from, to, count);
  } else if (cpu_features().avx2) {
    i = narrow_avx2(from, to, count);
  }
#endif
  for (; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

}  // namespace hs
