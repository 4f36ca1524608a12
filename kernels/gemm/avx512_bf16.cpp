// gemm for bf16 with AVX-512 BF16: vdpbf16ps multiplies 32 numbers in pairs and adds each pair of products to one of 16
// f32 sums. So the panels hold pairs along K.
#include "engine/cpu_features.h"
#include "kernels/gemm/blocked.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace hs {
namespace {

using namespace blocked;

constexpr int max_strip_rows = 6, strip_vectors = tile_columns / 16;

// sums[row][vector] = sum over steps of a[row][step] b[step][vector], plus what it was if `add`.
template <int rows, int vectors>
HS_TARGET_AVX512_BF16 void multiply_strip(const Cell* a, int64_t a_row, int64_t a_step, const Cell* b, int64_t steps,
                                          float* sums, bool add) {
  __m512 sum[rows][vectors] = {};
  for (int64_t s = 0; s < steps; ++s, a += a_step, b += tile_columns) {
    __m512i w[vectors];
    for (int v = 0; v < vectors; ++v) w[v] = _mm512_loadu_si512(b + v * 16);
    for (int r = 0; r < rows; ++r) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[r * a_row]));
      for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)x, (__m512bh)w[v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      float* to = sums + r * tile_columns + v * 16;
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]) : sum[r][v]);
    }
  }
}

using Strip = void (*)(const Cell*, int64_t, int64_t, const Cell*, int64_t, float*, bool);

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

  static int64_t strip_rows(int64_t) { return max_strip_rows; }

  static void multiply(const Left& a, const Cell* b, int64_t rows, int64_t columns, int64_t steps, float* sums,
                       bool add) {
    static_assert(strip_vectors == 4);
    strips[(columns + 15) / 16][rows](a.cells, a.row, a.step, b, steps, sums, add);
  }
};

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && cpu_features().avx512_bf16;
}

REGISTER_KERNEL(gemm, cpu, "avx512_bf16",
                {.run = gemm_blocked<Paired>,
                 .supported = supports,
                 .workspace = workspace<Paired>,
                 .rank = rank_of_bf16_pairs(5),
                 .layout = "rows"});

}  // namespace
}  // namespace hs

#endif
