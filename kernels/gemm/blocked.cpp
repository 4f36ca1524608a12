// gemm for f32, f16 and bf16 on any machine: panels of f32, multiplied with fused multiply-adds. 16-bit factors are
// widened while they are packed. Read first: kernels/gemm/blocked.h.
#include <array>
#include <cstring>
#include <utility>

#include "kernels/gemm/blocked.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

#include "kernels/cpu/strip.h"

namespace hs::HS_ISA {
namespace {

using namespace blocked;

// The registers of a strip, as many sums as fit beside a row of the panel and one broadcast value of A:
//   AVX-512 (32 registers): 6 x 4 or 8 x 3 vectors     AVX2, plain x86-64 (16): 6 x 2
// At least 8 sums keep both multiply-add units busy; loads are fewer than multiply-adds.
constexpr int max_vectors = registers == 32 ? 4 : 2, max_strip_rows = 8;
constexpr int64_t panel_columns = std::max<int64_t>(16, max_vectors* lanes);
constexpr int rows_of(int vectors) { return vectors == max_vectors ? 6 : max_strip_rows; }

template <int rows, int vectors>
void multiply_rows(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t steps, float* sums,
                   bool add) {
  multiply_strip<rows, vectors>(a, a_row, a_step, b, panel_columns, steps, sums, tile_columns, add);
}

using Strip = void (*)(const float*, int64_t, int64_t, const float*, int64_t, float*, bool);

template <int vectors, int... rows>
constexpr std::array<Strip, max_strip_rows> strips_of(std::integer_sequence<int, rows...>) {
  return {multiply_rows<rows + 1, vectors>...};
}
template <int... vectors>
constexpr std::array<std::array<Strip, max_strip_rows>, max_vectors> all_strips(
    std::integer_sequence<int, vectors...>) {
  return {strips_of<vectors + 1>(std::make_integer_sequence<int, rows_of(vectors + 1)>())...};
}
constexpr auto strips = all_strips(std::make_integer_sequence<int, max_vectors>());  // [vectors - 1][rows - 1]

template <class T>
struct Widened {
  using Element = T;
  struct Session {};
  static constexpr int64_t depth = 1, panel_columns = HS_ISA::panel_columns, max_steps = 128;
  static constexpr int64_t max_rows = 512, max_sums = 512 * 128, max_shared = 1 << 18;
  static constexpr bool rows_first = false, packs_strips = true;

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

  static int64_t vectors_of(int64_t columns) { return (columns + lanes - 1) / lanes; }
  static int64_t strip_rows(int64_t columns) {
    return rows_of(static_cast<int>(std::min<int64_t>(max_vectors, vectors_of(columns))));
  }

  static void multiply(const Left& a, const Cell* b, int64_t rows, int64_t columns, int64_t steps, float* sums,
                       bool add) {
    const int64_t vectors = vectors_of(columns);
    for (int64_t v = 0; v < vectors; v += max_vectors) {
      const auto now = static_cast<size_t>(std::min<int64_t>(max_vectors, vectors - v));
      strips[now - 1][static_cast<size_t>(rows) - 1](reinterpret_cast<const float*>(a.cells), a.row, a.step,
                                                     reinterpret_cast<const float*>(b) + v * lanes, steps,
                                                     sums + v * lanes, add);
    }
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
