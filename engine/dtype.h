// Element types. f16 and bf16 are storage types with exact conversions (engine/float16.h); f64 exists on the CPU only,
// for gradient checks; parameters, gradients and optimizer state are always f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/float16.h"

namespace hs {

enum class DType : uint8_t { f32, f16, bf16, f64, i32, u8 };  // the type of a tensor's elements

// A row of dtype_info.
struct DTypeInfo {
  const char* name;  // "f32", as in messages
  size_t size;       // bytes of an element
};
// Indexed with static_cast<int>(dtype).
inline constexpr DTypeInfo dtype_info[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f64", 8}, {"i32", 4}, {"u8", 1}};

constexpr size_t size_of(DType dtype) { return dtype_info[static_cast<int>(dtype)].size; }    // bytes of an element
constexpr const char* name(DType dtype) { return dtype_info[static_cast<int>(dtype)].name; }  // "f32"

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
