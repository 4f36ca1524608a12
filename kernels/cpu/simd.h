// Vectors of floats for hand-written CPU kernels, of the instruction set that kernels/cpu/each_isa.h compiles for:
// AVX-512 (16 floats), AVX2 (8), or what every machine has (4; NEON is that of ARM). No `#pragma once`: each_isa.h
// includes it once per instruction set.
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Keeps arrays of vectors in registers from the first instruction to the last: without it, GCC passes them through the
// stack.
#if defined(__clang__)
#define HS_UNROLL _Pragma("unroll")
#else
#define HS_UNROLL _Pragma("GCC unroll 8")
#endif

namespace hs::HS_ISA {

inline constexpr int64_t lanes = HS_VECTOR_BYTES / sizeof(float);  // floats in a vector
#if defined(__aarch64__)
inline constexpr int registers = 32;
#else
inline constexpr int registers = HS_VECTOR_BYTES == 64 ? 32 : 16;
#endif

using Vec = float __attribute__((vector_size(HS_VECTOR_BYTES)));

using Ints = int32_t __attribute__((vector_size(HS_VECTOR_BYTES)));  // what comparing two Vec gives: -1 or 0

// A Vec anywhere in memory. Not memcpy, for which GCC copies vectors through the stack.
using UnalignedVec [[gnu::aligned(alignof(float)), gnu::may_alias]] = Vec;
inline Vec load(const float* from) { return *reinterpret_cast<const UnalignedVec*>(from); }
inline void store(float* to, Vec v) { *reinterpret_cast<UnalignedVec*>(to) = v; }
inline Vec broadcast(float value) { return value - Vec{}; }

// a * b + c, rounded once if the instruction set can.
inline Vec fma(Vec a, Vec b, Vec c) {
#if HS_VECTOR_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#elif HS_VECTOR_BYTES == 32
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// Bit i is set if v[i] != 0 (NaN counts as not zero).
inline uint32_t nonzero_bits(Vec v) {
#if HS_VECTOR_BYTES == 64
  return _mm512_cmp_ps_mask(v, Vec{}, _CMP_NEQ_UQ);
#elif HS_VECTOR_BYTES == 32
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, Vec{}, _CMP_NEQ_UQ)));
#elif defined(__aarch64__)
  return static_cast<uint32_t>(vaddvq_s32((v != 0) & Ints{1, 2, 4, 8}));
#else
  uint32_t bits = 0;
  for (int i = 0; i < lanes; ++i) bits |= static_cast<uint32_t>(v[i] != 0) << i;
  return bits;
#endif
}

// Bytes to numbers and back, in the vectors' length. REQUIRES: 0 <= v[i] < 256
inline Ints load_bytes(const uint8_t* from) {
#if HS_VECTOR_BYTES == 64
  return reinterpret_cast<Ints>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif HS_VECTOR_BYTES == 32
  return reinterpret_cast<Ints>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return Ints{from[0], from[1], from[2], from[3]};
#endif
}
inline void store_bytes(uint8_t* to, Ints v) {
#if HS_VECTOR_BYTES == 64
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
#elif HS_VECTOR_BYTES == 32
  const __m256i words = _mm256_packus_epi32(reinterpret_cast<__m256i>(v), _mm256_setzero_si256());
  const __m256i bytes = _mm256_packus_epi16(words, words);  // four in each half
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
#else
  for (int i = 0; i < lanes; ++i) to[i] = static_cast<uint8_t>(v[i]);
#endif
}

// v where the bit of the lane is set, 0 elsewhere.
inline Vec where_bits(uint32_t bits, Vec v) {
#if HS_VECTOR_BYTES == 64
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), v);
#else
  using Words = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  Words bit;
  for (int i = 0; i < lanes; ++i) bit[i] = 1u << i;
  return (bit & bits) != 0 ? v : Vec{};
#endif
}

// The first `count` floats, and zeros; all if there are fewer lanes.
inline Vec load_first(const float* from, int64_t count) {
  if (count >= lanes) return load(from);
#if HS_VECTOR_BYTES == 64
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#else
  Vec v = {};
  std::memcpy(&v, from, static_cast<size_t>(count) * sizeof *from);
  return v;
#endif
}

// Stores the first `count` floats, all if there are fewer lanes.
inline void store_first(float* to, Vec v, int64_t count) {
  if (count >= lanes) return store(to, v);
#if HS_VECTOR_BYTES == 64
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), v);
#else
  std::memcpy(to, &v, static_cast<size_t>(count) * sizeof *to);
#endif
}

}  // namespace hs::HS_ISA
