// Shared memory as kernels use it: SharedArray for static arrays, dynamic_shared() for the size given at the launch,
// load_vector() and store_vector() for 16-byte accesses. Here all of it is plain arrays and pointers and costs nothing;
// the emulator's version (tests/cuda_emulator/include/kernels/cuda/shared.cuh), which the include path puts first,
// checks every access for races, unwritten elements and bounds. So kernels never write `__shared__ float x[N]`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

template <class T>
using SharedPointer = T*;

// __shared__ hs::SharedArray<float, 33 * 32> tile;
template <class T, int size>
class SharedArray {
 public:
  __device__ __forceinline__ T& operator[](int i) { return values_[i]; }
  __device__ __forceinline__ T* data() { return values_; }

 private:
  alignas(128) T values_[size];
};

// The dynamic shared memory of the block, from `byte_offset` on. At least 128-byte aligned at offset 0.
template <class T>
__device__ __forceinline__ T* dynamic_shared(size_t byte_offset = 0) {
  extern __shared__ __align__(128) unsigned char halfstep_dynamic_shared[];
  return reinterpret_cast<T*>(halfstep_dynamic_shared + byte_offset);
}

// The same memory as elements of another type.
template <class To, class T>
__device__ __forceinline__ To* shared_cast(T* pointer) {
  return reinterpret_cast<To*>(pointer);
}

// One access of sizeof(Vector) bytes, for shared and global memory. REQUIRES: the address is a multiple of it
template <class Vector, class T>
__device__ __forceinline__ Vector load_vector(const T* from) {
  return *reinterpret_cast<const Vector*>(from);
}
template <class Vector, class T>
__device__ __forceinline__ void store_vector(T* to, Vector value) {
  *reinterpret_cast<Vector*>(to) = value;
}

}  // namespace hs
