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
using half = __half;

inline float __half2float(__half h) { return static_cast<float>(h); }
inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
