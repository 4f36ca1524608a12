// Stand-in for cuda_bf16.h; see cuda_fp16.h.
#pragma once

#include "cuda_runtime.h"
#include "engine/float16.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(value != value ? 0x7fff : hs::to_bfloat16(value).bits) {}
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  explicit operator float() const { return hs::to_float(hs::BFloat16{bits}); }
};
using nv_bfloat16 = __nv_bfloat16;

inline float __bfloat162float(__nv_bfloat16 b) { return static_cast<float>(b); }
inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
