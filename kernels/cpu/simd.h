// Vectors of floats for hand-written CPU kernels: the widest that -march enables, so one source serves AVX-512 (16
// floats), AVX (8) and plain x86-64 or other machines (4). CPU files only.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace hs::simd {

#if defined(__AVX512F__)
inline constexpr int width = 16;
inline constexpr int registers = 32;
#elif defined(__AVX__)
inline constexpr int width = 8;
inline constexpr int registers = 16;
#else
inline constexpr int width = 4;
inline constexpr int registers = 16;
#endif

using Vec = float __attribute__((vector_size(width * sizeof(float))));

inline Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
inline Vec broadcast(float value) { return value - Vec{}; }

// a * b + c, rounded once if the machine can.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Bit i is set if v[i] != 0 (NaN counts as not zero).
inline uint32_t nonzero_bits(Vec v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(v, Vec{}, _CMP_NEQ_UQ);
#elif defined(__AVX__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, Vec{}, _CMP_NEQ_UQ)));
#else
  uint32_t bits = 0;
  for (int i = 0; i < width; ++i) bits |= static_cast<uint32_t>(v[i] != 0) << i;
  return bits;
#endif
}

}  // namespace hs::simd
