// gemm for f16 and bf16 on any machine: panels of f32, multiplied as f32. The slices of K that fit a panel are short,
// so widening them costs little beside the products.
#include <bit>

#include "kernels/gemm/blocked.h"

#ifdef HS_ISA

namespace hs::HS_ISA {
namespace {

using namespace blocked;

constexpr int strip_rows = 6, strip_vectors = registers == 32 ? 4 : 2;

// tile[row][vector] += sum over steps of a[row][step] b[step][vector]
template <int rows, int vectors>
void multiply_strip(const Cell* a, int64_t a_row, int64_t a_step, const Cell* b, int64_t steps, float* tile) {
  Vec sum[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = load(tile + r * tile_columns + v * lanes);
  }
  for (int64_t s = 0; s < steps; ++s, a += a_step, b += tile_columns) {
    Vec w[vectors];
    for (int v = 0; v < vectors; ++v) w[v] = load(reinterpret_cast<const float*>(b) + v * lanes);
    for (int r = 0; r < rows; ++r) {
      const Vec x = broadcast(std::bit_cast<float>(uint32_t{a[r * a_row]}));
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(x, w[v], sum[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(tile + r * tile_columns + v * lanes, sum[r][v]);
  }
}

using Strip = void (*)(const Cell*, int64_t, int64_t, const Cell*, int64_t, float*);

template <int vectors>
constexpr Strip strips_of[] = {nullptr,
                               multiply_strip<1, vectors>,
                               multiply_strip<2, vectors>,
                               multiply_strip<3, vectors>,
                               multiply_strip<4, vectors>,
                               multiply_strip<5, vectors>,
                               multiply_strip<6, vectors>};
constexpr const Strip* strips[] = {nullptr, strips_of<1>, strips_of<2>, strips_of<strip_vectors == 4 ? 3 : 1>,
                                   strips_of<strip_vectors>};

template <class T>
struct Widened {
  using Element = T;
  struct Session {};
  static constexpr int64_t depth = 1;
  static constexpr bool rows_first = false;

  static void pack(const T* row, const T*, int64_t count, Cell* to) { widen(row, reinterpret_cast<float*>(to), count); }
  static void pack_row(const T* row, int64_t count, Cell* to) { pack(row, nullptr, count, to); }

  static void multiply(Panels& p, int64_t rows, int64_t columns, int64_t steps) {
    const int64_t vectors = (columns + lanes - 1) / lanes;
    for (int64_t v = 0; v < vectors; v += strip_vectors) {
      const Strip* kernels = strips[std::min<int64_t>(strip_vectors, vectors - v)];
      for_strips<strip_rows>(rows, [&](int64_t row, int64_t count) {
        kernels[count](p.a + row * p.a_row(), p.a_row(), p.a_step(), p.b + v * lanes, steps,
                       p.tile + row * tile_columns + v * lanes);
      });
    }
  }
};

void gemm_widened(const Gemm& call) {
  const auto run = call.a.dtype() == DType::f16 ? gemm_blocked<Widened<Half>> : gemm_blocked<Widened<BFloat16>>;
  run(call);
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/gemm/widened.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(gemm, cpu, "widened",
                {.run =
                     +[](const Gemm& call) {
                       HS_FOR_THIS_CPU(gemm_widened)
                       (call);
                     },
                 .supported = [](const Gemm& call) { return is_16_bit(call.a) && is_same_or_f32(call.a, call.c); },
                 .layout = "rows"});

}  // namespace hs

#endif
