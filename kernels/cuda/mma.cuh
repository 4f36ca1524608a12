// Warp-wide matrix instructions and asynchronous copies, one C++ function per PTX instruction (sm_80 and up). The
// emulator replaces this file (tests/cuda_emulator/include/kernels/cuda/mma.cuh). All 32 lanes of a warp call each of
// the matrix functions together. A lane's elements in mma.m16n8k16, with group = lane / 4 and pair = 2 * (lane % 4),
// two 16-bit values per register, the lower column (of A) or row (of B) in the lower half:
//   A (16x16, row)   a[0]: row group, columns pair, pair + 1      a[1]: row group + 8
//                    a[2], a[3]: the same rows, columns + 8
//   B (16x8, col)    b[0]: rows pair, pair + 1, column group      b[1]: rows + 8
//   C and D (16x8)   d[0], d[1]: row group, columns pair, pair + 1     d[2], d[3]: row group + 8
// ldmatrix loads four 8x8 tiles of 16-bit values: lane l gives the address of row l % 8 of tile l / 8, and receives in
// r[i] the values pair, pair + 1 of row `group` of tile i; with _trans, of column `group`.
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/shared.cuh"

namespace hs {

// REQUIRES: `row` points to 16 aligned bytes of shared memory
template <class T>
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], T* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
template <class T>
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], T* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// d = a * b + c; d and c may be the same array.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                 const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                  const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                             const float (&c)[4]) {
  if constexpr (std::is_same_v<T, __half>) {
    mma_m16n8k16_f16(d, a, b, c);
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    mma_m16n8k16_bf16(d, a, b, c);
  }
}

// Two numbers to the nearest of T, ties to even; the first in the lower half. One by one, a conversion takes 8 cycles.
template <class T>
__device__ __forceinline__ uint32_t round_two(float first, float second) {
  uint32_t two;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
  }
  return two;
}

// 16 bytes from global to shared memory without registers in between. Only the first `valid_bytes` are read, the rest
// becomes zero. Complete after this thread's wait; visible to other threads after a barrier that follows the wait.
template <class T>
__device__ __forceinline__ void cp_async_16(T* to, const void* from, int valid_bytes = 16) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(valid_bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `groups_left` of the groups that this thread has committed are in flight.
template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

}  // namespace hs
