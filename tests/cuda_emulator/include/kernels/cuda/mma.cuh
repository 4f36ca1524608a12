// The emulator's kernels/cuda/mma.cuh: the same functions as in the real one, which explains them. source/mma.cpp does
// the work, when the last lane of the warp has arrived.
#pragma once

#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "kernels/cuda/shared.cuh"

namespace hs {
namespace emulator {

void ldmatrix(uint32_t (&r)[4], SharedBuffer* buffer, ptrdiff_t offset, bool transposed, const Place& place);
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4], bool bf16,
         const Place& place);

}  // namespace emulator

template <class T>
void ldmatrix_x4(uint32_t (&r)[4], SharedPointer<T> row, HS_HERE) {
  emulator::ldmatrix(r, row.buffer, row.offset, false, HS_PLACE);
}
template <class T>
void ldmatrix_x4_trans(uint32_t (&r)[4], SharedPointer<T> row, HS_HERE) {
  emulator::ldmatrix(r, row.buffer, row.offset, true, HS_PLACE);
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                             HS_HERE) {
  emulator::mma(d, a, b, c, false, HS_PLACE);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                              HS_HERE) {
  emulator::mma(d, a, b, c, true, HS_PLACE);
}
template <class T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4], HS_HERE) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  emulator::mma(d, a, b, c, std::is_same_v<T, __nv_bfloat16>, HS_PLACE);
}

template <class T>
uint32_t round_two(float first, float second) {
  return T(first).bits | static_cast<uint32_t>(T(second).bits) << 16;
}

template <class T>
void cp_async_16(SharedPointer<T> to, const void* from, int valid_bytes = 16) {
  emulator::async_copy(*to.buffer, to.offset, from, 16, valid_bytes);
}
inline void cp_async_commit() { emulator::async_commit(); }
template <int groups_left>
void cp_async_wait() {
  emulator::async_wait(groups_left);
}

}  // namespace hs
