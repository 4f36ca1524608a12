// gemm for bf16 with AVX-512 BF16: vdpbf16ps multiplies 32 numbers in pairs and adds each pair of products to one of 16
// f32 sums. So the panels hold pairs along K.
#include "engine/cpu_features.h"
#include "kernels/gemm/blocked.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace hs {
namespace {

using namespace blocked;

constexpr int strip_rows = 6, strip_vectors = tile_columns / 16;

// tile[row][vector] += sum over steps of a[row][step] b[step][vector]
template <int rows, int vectors>
HS_TARGET_AVX512_BF16 void multiply_strip(const Cell* a, int64_t a_row, int64_t a_step, const Cell* b, int64_t steps,
                                          float* tile) {
  __m512 sum[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_loadu_ps(tile + r * tile_columns + v * 16);
  }
  for (int64_t s = 0; s < steps; ++s, a += a_step, b += tile_columns) {
    __m512i w[vectors];
    for (int v = 0; v < vectors; ++v) w[v] = _mm512_loadu_si512(b + v * 16);
    for (int r = 0; r < rows; ++r) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[r * a_row]));
      for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)x, (__m512bh)w[v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(tile + r * tile_columns + v * 16, sum[r][v]);
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
constexpr const Strip* strips[] = {nullptr, strips_of<1>, strips_of<2>, strips_of<3>, strips_of<4>};

struct Paired : PairedPanels {
  struct Session {};
  static constexpr bool rows_first = false;

  static void multiply(Panels& p, int64_t rows, int64_t columns, int64_t steps) {
    const Strip* kernels = strips[(columns + 15) / 16];
    static_assert(strip_vectors == 4);
    for_strips<strip_rows>(rows, [&](int64_t row, int64_t count) {
      kernels[count](p.a + row * p.a_row(), p.a_row(), p.a_step(), p.b, steps, p.tile + row * tile_columns);
    });
  }
};

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && cpu_features().avx512_bf16;
}

REGISTER_KERNEL(gemm, cpu, "avx512_bf16",
                {.run = gemm_blocked<Paired>, .supported = supports, .rank = 10, .layout = "rows"});

}  // namespace
}  // namespace hs

#endif
