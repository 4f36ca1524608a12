// gemm for f32, f16 and bf16 on any machine: panels of f32, multiplied with fused multiply-adds. 16-bit factors are
// widened while they are packed. Read first: kernels/gemm/blocked.h.
#include <array>
#include <cstring>
#include <utility>

#include "kernels/gemm/blocked.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

#include "kernels/cpu/block.h"

namespace hs::HS_ISA {
namespace {

using namespace blocked;

constexpr int64_t panel_columns = std::max<int64_t>(16, max_vectors* lanes);

template <class T>
struct Widened {
  using Element = T;
  struct Session {};
  static constexpr int64_t depth = 1, panel_columns = HS_ISA::panel_columns, max_steps = 128;
  static constexpr int64_t max_rows = 512, max_sums = 512 * 128, max_shared = 1 << 18;
  static constexpr bool rows_first = false, packs_strips = true, stores_rows = true;

  static void pack_k_rows(const T* from, int64_t from_stride, int64_t rows, int64_t count, Cell* to,
                          int64_t to_stride) {
    for (int64_t i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
      pack_k_row(from, count, to);
      for (int64_t j = count; j < round_up(count, 16); ++j) to[j] = 0;
    }
  }
  static void pack_k_row(const T* row, int64_t count, Cell* to) {
    float* values = reinterpret_cast<float*>(to);
    if constexpr (stores_16_bits<T>) {
      widen(row, values, count);
    } else {
      int64_t i = 0;
      for (; i + lanes <= count; i += lanes) store(values + i, load(row + i));
      if (i < count) store_first(values + i, load_first(row + i, count - i), count - i);
    }
  }

  static void pack_strip(const Cell* from, int64_t from_step, int64_t steps, Cell* to) {
    for (; steps > 0; --steps, from += from_step, to += strip_slot) std::memcpy(to, from, strip_slot * sizeof(Cell));
  }

  static int64_t strip_rows(int64_t columns) { return HS_ISA::strip_rows(columns); }

  static void multiply(const Left& a, const Cell* b, int64_t rows, int64_t columns, int64_t steps, float* sums,
                       bool add, int64_t sums_row = tile_columns) {
    multiply_rows({reinterpret_cast<const float*>(a.cells), a.row, a.step}, rows,
                  {reinterpret_cast<const float*>(b), panel_columns}, columns, steps, {sums, sums_row}, add);
  }
};

void multiply(const Gemm& call, Tensor& memory) {
  for_f32_or_16_bits(call.a.dtype(), [&]<class T>() { gemm_blocked<Widened<T>>(call, memory); });
}
int64_t bytes(const Gemm& call) {
  return for_f32_or_16_bits(call.a.dtype(), [&]<class T>() { return workspace<Widened<T>>(call); });
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/gemm/blocked.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(gemm, cpu, "blocked",
                {.run = HS_DISPATCHED(multiply),
                 .supported =
                     [](const Gemm& call) {
                       return (is_f32(call.a) || is_16_bit(call.a)) && is_same_or_f32(call.a, call.c);
                     },
                 .workspace = HS_DISPATCHED(bytes),
                 .rank = 5,
                 .layout = "rows"});

}  // namespace hs

#endif
