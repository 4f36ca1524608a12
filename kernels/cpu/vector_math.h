// Functions of vectors of floats: sum and maximum of the lanes, and the exponential.
// No `#pragma once`: a file that kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA
// part, and <bit> before it.
namespace hs::HS_ISA {

// In a fixed tree: lane i and lane i + lanes / 2, and so on.
inline float lane_sum(Vec v) {
#if HS_VECTOR_BYTES == 64
  return _mm512_reduce_add_ps(v);
#elif HS_VECTOR_BYTES == 32
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float values[lanes];
  store(values, v);
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
#endif
}

// The larger of each pair of lanes, and the smaller; b if one of them is NaN. As GCC does not make one instruction of
// it.
inline Vec larger(Vec a, Vec b) {
#if HS_VECTOR_BYTES == 64
  return _mm512_max_ps(a, b);
#elif HS_VECTOR_BYTES == 32
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline Vec smaller(Vec a, Vec b) {
#if HS_VECTOR_BYTES == 64
  return _mm512_min_ps(a, b);
#elif HS_VECTOR_BYTES == 32
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

inline float lane_max(Vec v) {
#if HS_VECTOR_BYTES == 64
  return _mm512_reduce_max_ps(v);
#elif HS_VECTOR_BYTES == 32
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  float values[lanes];
  store(values, v);
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] = values[i] > values[i + half] ? values[i] : values[i + half];
  }
  return values[0];
#endif
}

// The first `count` lanes of v, all if there are fewer, and zeros.
inline Vec first_lanes(Vec v, int64_t count) { return count >= lanes ? v : where_bits((1u << count) - 1, v); }

// The first `count` lanes of v, all if there are fewer and none if it is negative, and `rest` in the others.
inline Vec first_or(Vec v, int64_t count, float rest) {
  if (count >= lanes) return v;
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  return lane < static_cast<int32_t>(count) ? v : broadcast(rest);
}

// The first `count` floats, in the same way: no more is read.
inline Vec load_first_or(const float* from, int64_t count, float rest) {
  return count <= 0 ? broadcast(rest) : first_or(load_first(from, count), count, rest);
}

// e^x, off by at most 2 units in the last place. Below -87.33, where the
// result would be subnormal, 0; above 88.37, what it is there, 2.4e38. NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r is a polynomial with the coefficients of Cephes' expf (Moshier); 2^n is n
// written into the exponent. ln 2 is subtracted in two parts, of which n times the first is exact.
inline Vec exp(Vec x) {
  constexpr float smallest = -87.33654f, largest = 88.37f, magic = 0x1.8p23f;
  const Vec bounded = x > largest ? broadcast(largest) : x;
  const Vec shifted = fma(bounded, broadcast(1.442695041f), broadcast(magic));  // n in the lowest bits
  const Vec n = shifted - magic;
  const Vec r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), bounded));
  Vec p = broadcast(1.9875691500e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = fma(p, r, broadcast(c));
  }
  p = fma(p, r * r, r) + 1.0f;
  using Words = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));  // they may wrap, where the result is not used
  const Words power = (__builtin_bit_cast(Words, shifted) << 23) + 0x3f800000u;
  const Vec result = p * __builtin_bit_cast(Vec, power);
  return x < smallest ? Vec{} : result;
}

// x = 2^x, several side by side, which hides the time that a step takes, for -126 <= x < 127.5: off by at most 2 units
// in the last place. NaN stays NaN. In fewer steps than exp(), because x - n is exact.
template <int n>
void exp2_of_bounded(Vec (&x)[n]) {
  constexpr float magic = 0x1.8p23f;
  using Words = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));
  Vec shifted[n], r[n], p[n];
  HS_UNROLL for (int i = 0; i < n; ++i) shifted[i] = x[i] + magic;  // the integer in the lowest bits
  HS_UNROLL for (int i = 0; i < n; ++i) r[i] = x[i] - (shifted[i] - magic), p[i] = broadcast(1.5453163360e-4f);
  for (const float c :
       {1.3390863314e-3f, 9.6180830150e-3f, 5.5503569543e-2f, 2.4022650719e-1f, 6.9314718246e-1f, 1.0f}) {
    HS_UNROLL for (int i = 0; i < n; ++i) p[i] = fma(p[i], r[i], broadcast(c));
  }
  HS_UNROLL for (int i = 0; i < n; ++i) {
    const Words power = (__builtin_bit_cast(Words, shifted[i]) << 23) + 0x3f800000u;
    x[i] = p[i] * __builtin_bit_cast(Vec, power);
  }
}

// The same for any x < 127.5: 0 below -126.
template <int n>
void exp2(Vec (&x)[n]) {
  Vec power[n];
  HS_UNROLL for (int i = 0; i < n; ++i) power[i] = x[i];
  exp2_of_bounded(power);
  HS_UNROLL for (int i = 0; i < n; ++i) x[i] = x[i] < -126.0f ? Vec{} : power[i];
}

// 1 / x, off by at most 1 unit in the last place. REQUIRES: x and 1 / x are neither subnormal nor infinite, or x is NaN
inline Vec reciprocal(Vec x) {
#if HS_VECTOR_BYTES == 64
  const Vec near = _mm512_rcp14_ps(x);  // a division takes 16 cycles
  return fma(near, fma(-x, near, broadcast(1.0f)), near);
#else
  return 1.0f / x;
#endif
}

}  // namespace hs::HS_ISA
