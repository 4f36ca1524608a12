// Stand-in for cuda_fp16.h: __half as a storage type, converted to float to compute. The real type also has arithmetic
// and implicit conversions; they are left out on purpose, since halfstep computes in f32 and an accidental f16 sum
// should not compile. A NaN becomes 0x7fff, as on the device.
#pragma once

#include "cuda_runtime.h"
#include "engine/float16.h"

struct __half_raw {
  unsigned short x;
};
struct __half {
  unsigned short bits;
  __half() = default;
  explicit __half(float value) : bits(value != value ? 0x7fff : hs::to_half(value).bits) {}
  __half(__half_raw raw) : bits(raw.x) {}
  explicit operator float() const { return hs::to_float(hs::Half{bits}); }
};
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half low, __half high) : x(low), y(high) {}
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half h) { return static_cast<float>(h); }
inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __floats2half2_rn(float low, float high) { return {__half(low), __half(high)}; }
inline __half2 __float22half2_rn(float2 f) { return __floats2half2_rn(f.x, f.y); }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half2 make_half2(__half low, __half high) { return {low, high}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
