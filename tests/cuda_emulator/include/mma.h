// Stand-in for mma.h: nvcuda::wmma for 16x16x16 tiles of f16 or bf16 with f32 accumulators. Which element of a tile
// x[i] of a lane is, the real one does not say; here it is the layout of two mma.m16n8k16. As on sm_80, each element
// of a and b is held twice.
#pragma once

#include "kernels/cuda/mma.cuh"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
enum layout_t { mem_row_major, mem_col_major };

template <class T, int size>
struct fragment_elements {
  enum { num_elements = size };
  T x[size];
};
template <class Use, int m, int n, int k, class T, class Layout = void>
class fragment;
template <class T, class Layout>
class fragment<matrix_a, 16, 16, 16, T, Layout> : public fragment_elements<T, 16> {};
template <class T, class Layout>
class fragment<matrix_b, 16, 16, 16, T, Layout> : public fragment_elements<T, 16> {};
template <>
class fragment<accumulator, 16, 16, 16, float> : public fragment_elements<float, 8> {};

namespace emulated {

// Row and column of element i of a lane, in b (k x n), and in a (m x k) and the accumulator (m x n).
struct Place2 {
  int row, column;
};
inline Place2 element(matrix_b*, int lane, int i) {
  i %= 8;
  return {2 * (lane % 4) + i % 2 + 8 * (i / 2 % 2), lane / 4 + 8 * (i / 4)};
}
inline Place2 element(void*, int lane, int i) {
  i %= 8;
  return {lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4)};
}

inline uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }
template <class T>
uintptr_t address(hs::SharedPointer<T> p) {
  return address(p.buffer->data) + static_cast<uintptr_t>(p.offset);
}

// Calls visit(i, index into memory) for the elements of this lane, after all lanes have come.
template <class Use, class Pointer, class Visit>
void for_elements(int count, Pointer memory, unsigned ld, bool rows, unsigned ld_multiple,
                  const hs::emulator::Place& place, Visit&& visit) {
  if (address(memory) % 32 != 0 || ld % ld_multiple != 0) {
    hs::emulator::device_fault(cudaErrorMisalignedAddress,
                               "wmma wants 32-byte aligned tiles and a leading dimension "
                               "that is a multiple of %u; got address %% 32 = %d, ld = %u",
                               ld_multiple, static_cast<int>(address(memory) % 32), ld);
  }
  hs::emulator::collective(0xffffffffu, nullptr, nullptr, false, place);
  for (int i = 0; i < count; ++i) {
    const Place2 at = element(static_cast<Use*>(nullptr), hs::emulator::lane(), i);
    visit(i, rows ? at.row * static_cast<int>(ld) + at.column : at.column * static_cast<int>(ld) + at.row);
  }
}

}  // namespace emulated

template <class Use, int m, int n, int k, class T, class Layout>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, const std::type_identity_t<T>& value) {
  for (T& x : f.x) x = value;
}

template <class Use, class T, class Layout, class Pointer>
requires(!std::is_same_v<Use, accumulator>) void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f,
                                                                  Pointer memory, unsigned ld, HS_HERE) {
  emulated::for_elements<Use>(16, memory, ld, std::is_same_v<Layout, row_major>, 8, HS_PLACE,
                              [&](int i, int at) { f.x[i] = memory[at]; });
}
template <class Pointer>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& f, Pointer memory, unsigned ld, layout_t layout,
                      HS_HERE) {
  emulated::for_elements<accumulator>(8, memory, ld, layout == mem_row_major, 4, HS_PLACE,
                                      [&](int i, int at) { f.x[i] = memory[at]; });
}
template <class Pointer>
void store_matrix_sync(Pointer memory, const fragment<accumulator, 16, 16, 16, float>& f, unsigned ld, layout_t layout,
                       HS_HERE) {
  emulated::for_elements<accumulator>(8, memory, ld, layout == mem_row_major, 4, HS_PLACE,
                                      [&](int i, int at) { memory[at] = f.x[i]; });
}

// Two products of half of the columns each, in whose layout the elements are.
template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b, const fragment<accumulator, 16, 16, 16, float>& c,
              HS_HERE) {
  for (int half = 0; half < 2; ++half) {
    uint32_t of_a[4], of_b[2];
    float of_c[4], of_d[4];
    memcpy(of_a, a.x, sizeof of_a);
    memcpy(of_b, b.x + 4 * half, sizeof of_b);
    memcpy(of_c, c.x + 4 * half, sizeof of_c);
    hs::emulator::mma(of_d, of_a, of_b, of_c, std::is_same_v<T, __nv_bfloat16>, HS_PLACE);
    memcpy(d.x + 4 * half, of_d, sizeof of_d);
  }
}

}  // namespace nvcuda::wmma
