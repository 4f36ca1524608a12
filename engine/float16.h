// IEEE 754 binary16 (Half: 1 sign, 5 exponent, 10 mantissa bits) and bfloat16 (the upper half of a float) as storage
// types. Widening is exact; narrowing rounds to nearest, ties to even; overflow gives inf, NaN stays a quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/host_device.h"

namespace hs {

struct Half {  // bits: sign, 5 of the exponent, 10 of the mantissa, from the highest
  uint16_t bits;
};
struct BFloat16 {  // bits: the upper 16 of a float
  uint16_t bits;
};

// float -> the nearest Half.
HS_HOST_DEVICE constexpr Half to_half(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (f >> 16) & 0x8000u;
  const uint32_t magnitude = f & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the upper payload bits, set the quiet bit
    return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu))};
  }
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to 65536 or more: inf
  if (magnitude < 0x33000001u) return {static_cast<uint16_t>(sign)};             // 2^-25 is a tie with zero: even
  uint32_t mantissa, shift, exponent;
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
    mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    shift = 126u - (magnitude >> 23);
    exponent = 0;
  } else {
    mantissa = magnitude & 0x7fffffu;
    shift = 13;
    exponent = ((magnitude >> 23) - 112u) << 10;
  }
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  const uint32_t up = rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
  return {static_cast<uint16_t>(sign | (exponent + kept + up))};  // a carry moves into the exponent, as it must
}

HS_HOST_DEVICE constexpr float to_float(Half h) {  // exact
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1fu;
  uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: 10 bits times a power of two
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// float -> the nearest BFloat16.
HS_HOST_DEVICE constexpr BFloat16 to_bfloat16(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  if ((f & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((f >> 16) | 0x40u)};  // quiet NaN
  return {static_cast<uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16)};
}

HS_HOST_DEVICE constexpr float to_float(BFloat16 b) {  // exact
  return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16);
}

}  // namespace hs
