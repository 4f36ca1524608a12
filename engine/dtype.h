// Element types. f16 and bf16 are storage types with exact conversions (engine/float16.h); f64 exists on the CPU only,
// for gradient checks; parameters, gradients and optimizer state are always f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/float16.h"

namespace hs {

enum class DType : uint8_t { f32, f16, bf16, f64, i32, u8 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

// dtype_of<T>: the DType that stores a C++ type.
template <class T>
inline constexpr DType dtype_of = static_cast<DType>(255);
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

}  // namespace hs
