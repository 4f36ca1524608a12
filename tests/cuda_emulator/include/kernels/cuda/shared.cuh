// The emulator's kernels/cuda/shared.cuh: same names as the real one, every access checked (emulator/shared.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/device.h"
#include "emulator/shared.h"

namespace hs {

template <class T>
class SharedPointer;

// What operator[] gives: reading and writing go through the shadow. Write `float v = tile[i];`, never `auto`.
template <class T>
class SharedReference {
 public:
  using Value = std::remove_const_t<T>;

  SharedReference(emulator::SharedBuffer* buffer, ptrdiff_t offset) : buffer_(buffer), offset_(offset) {}
  // `c ? tile[i] : 0` would be an int here and is a float in CUDA: with this it does not compile; write 0.0f.
  template <class U>
  requires(std::is_arithmetic_v<U> && !std::is_same_v<U, Value>) SharedReference(U);  // not defined
  __forceinline__ operator Value() const {
    Value value{};
    if (buffer_->access(offset_, sizeof(T), emulator::Access::read)) memcpy(&value, buffer_->at(offset_), sizeof(T));
    return value;
  }
  __forceinline__ const SharedReference& operator=(Value value) const requires(!std::is_const_v<T>) {
    if (buffer_->access(offset_, sizeof(T), emulator::Access::write)) memcpy(buffer_->at(offset_), &value, sizeof(T));
    return *this;
  }
  __forceinline__ const SharedReference& operator=(const SharedReference& other) const {
    return *this = static_cast<Value>(other);
  }
  SharedReference(const SharedReference&) = default;
  __forceinline__ const SharedReference& operator+=(Value v) const { return *this = Value(Value(*this) + v); }
  __forceinline__ const SharedReference& operator-=(Value v) const { return *this = Value(Value(*this) - v); }
  __forceinline__ const SharedReference& operator*=(Value v) const { return *this = Value(Value(*this) * v); }
  __forceinline__ const SharedReference& operator|=(Value v) const { return *this = Value(Value(*this) | v); }
  SharedPointer<T> operator&() const { return {buffer_, offset_}; }

 private:
  emulator::SharedBuffer* buffer_;
  ptrdiff_t offset_;
};

// T* in the real version.
template <class T>
class SharedPointer {
 public:
  SharedPointer(emulator::SharedBuffer* buffer, ptrdiff_t offset) : buffer(buffer), offset(offset) {}
  template <class U>
  requires(std::is_same_v<const U, T>) SharedPointer(SharedPointer<U> other)
      : buffer(other.buffer), offset(other.offset) {}

  SharedReference<T> operator[](int64_t i) const { return {buffer, offset + i * static_cast<ptrdiff_t>(sizeof(T))}; }
  SharedReference<T> operator*() const { return (*this)[0]; }
  SharedPointer operator+(int64_t i) const { return {buffer, offset + i * static_cast<ptrdiff_t>(sizeof(T))}; }
  SharedPointer operator-(int64_t i) const { return *this + -i; }
  SharedPointer& operator+=(int64_t i) { return *this = *this + i; }

  emulator::SharedBuffer* buffer;
  ptrdiff_t offset;  // in bytes; may point outside until it is used
};

// __shared__ hs::SharedArray<float, 33 * 32> tile;
template <class T, int size>
class SharedArray {
  static_assert(std::is_trivially_copyable_v<T> && size > 0);

 public:
  constexpr SharedArray() {}  // not defaulted, so that __shared__ may make it const
  SharedArray(const SharedArray&) = delete;
  SharedReference<T> operator[](int64_t i) const { return data()[i]; }
  SharedPointer<T> data() const { return {&buffer_, 0}; }

 private:
  static constexpr size_t granule = sizeof(T) % 4 == 0 ? 4 : sizeof(T) % 2 == 0 ? 2 : 1;
  alignas(128) mutable T values_[size] = {};
  mutable emulator::SharedBuffer buffer_{values_, sizeof(values_), granule, sizeof(T)};
};

// The dynamic shared memory of the block, from `byte_offset` on.
template <class T>
SharedPointer<T> dynamic_shared(size_t byte_offset = 0) {
  static_assert(sizeof(T) >= 2, "the emulator's shadow of dynamic shared memory keeps two bytes per cell");
  return {&emulator::dynamic_shared_buffer(), static_cast<ptrdiff_t>(byte_offset)};
}

// The same memory as elements of another type.
template <class To, class T>
SharedPointer<To> shared_cast(SharedPointer<T> pointer) {
  return {pointer.buffer, pointer.offset};
}

// One access of sizeof(Vector) bytes. REQUIRES: the address is a multiple of sizeof(Vector)
template <class Vector, class T>
__forceinline__ Vector load_vector(SharedPointer<T> from) {
  return shared_cast<const Vector>(from)[0];
}
template <class Vector, class T>
__forceinline__ void store_vector(SharedPointer<T> to, Vector value) {
  shared_cast<Vector>(to)[0] = value;
}
template <class Vector, class T>
__forceinline__ Vector load_vector(const T* from) {
  emulator::check_vector(from, sizeof(Vector), false);
  Vector value;
  emulator::copy_vector(&value, from, sizeof value,
                        false);  // memcpy: a misaligned address is reported above, and goes on
  return value;
}
template <class Vector, class T>
__forceinline__ void store_vector(T* to, Vector value) {
  emulator::check_vector(to, sizeof(Vector), true);
  emulator::copy_vector(to, &value, sizeof value, true);
}

}  // namespace hs

#define HS_EMULATOR_SHARED_ATOMIC(name)                                                            \
  template <class T>                                                                               \
  requires(std::is_integral_v<T>) T name(hs::SharedPointer<T> at, std::type_identity_t<T> value) { \
    if (!at.buffer->access(at.offset, sizeof(T), hs::emulator::Access::atomic)) return T{};        \
    return name(reinterpret_cast<T*>(at.buffer->at(at.offset)), value);                            \
  }
HS_EMULATOR_SHARED_ATOMIC(atomicAdd)
HS_EMULATOR_SHARED_ATOMIC(atomicOr)
HS_EMULATOR_SHARED_ATOMIC(atomicAnd)
HS_EMULATOR_SHARED_ATOMIC(atomicMax)
HS_EMULATOR_SHARED_ATOMIC(atomicMin)
#undef HS_EMULATOR_SHARED_ATOMIC
