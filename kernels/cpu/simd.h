// Vectors of floats for hand-written CPU kernels, of the instruction set that kernels/cpu/each_isa.h compiles for:
// AVX-512 (16 floats), AVX2 (8), or what every machine has (4). No `#pragma once`: each_isa.h includes it once per
// instruction set.
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hs::HS_ISA {

inline constexpr int64_t lanes = HS_VECTOR_BYTES / sizeof(float);  // floats in a vector
inline constexpr int registers = HS_VECTOR_BYTES == 64 ? 32 : 16;

using Vec = float __attribute__((vector_size(HS_VECTOR_BYTES)));

inline Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
inline Vec broadcast(float value) { return value - Vec{}; }

// a * b + c, rounded once if the instruction set can.
inline Vec fma(Vec a, Vec b, Vec c) {
#if HS_VECTOR_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#elif HS_VECTOR_BYTES == 32
  return _mm256_fmadd_ps(a, b, c);
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
#else
  uint32_t bits = 0;
  for (int i = 0; i < lanes; ++i) bits |= static_cast<uint32_t>(v[i] != 0) << i;
  return bits;
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
