// gemm for bf16 and for f16 on ARM: bfdot multiplies 8 numbers in pairs and adds each pair of products to one of 4 f32
// sums, fmla multiplies and adds 8 numbers in f16. As avx512_bf16.cpp and avx512_fp16.h have it, in shorter vectors.
#include "engine/cpu_features.h"
#include "kernels/gemm/avx512_fp16.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cmath>

namespace hs {
namespace {

using namespace blocked;

// Vectors of 4 sums, for 16 columns: 6 rows of them, a row of B and a value of A fit 32 registers.
constexpr int quads = 4;

// Stores the sums of a row's 16 columns, added to what was there if `add`.
void store_sums(const float32x4_t (&sums)[quads], float* to, bool add) {
  for (int q = 0; q < quads; ++q) vst1q_f32(to + 4 * q, add ? vaddq_f32(vld1q_f32(to + 4 * q), sums[q]) : sums[q]);
}

struct DotProducts {
  // sums[row][column] = sum over steps of a[row][step] b[step][column], plus what it was if `add`.
  template <int rows, int vectors>
  HS_TARGET_NEON_BF16 static void multiply(Left a, const Cell* b, int64_t steps, float* sums, bool add) {
    for (int v = 0; v < vectors; ++v, b += 16, sums += 16) {
      float32x4_t sum[rows][quads] = {};
      for (int64_t s = 0; s < steps; ++s) {
        bfloat16x8_t w[quads];
        for (int q = 0; q < quads; ++q) w[q] = vreinterpretq_bf16_u32(vld1q_u32(b + s * tile_columns + 4 * q));
        for (int r = 0; r < rows; ++r) {
          const bfloat16x8_t x = vreinterpretq_bf16_u32(vdupq_n_u32(a.cells[r * a.row + s * a.step]));
          for (int q = 0; q < quads; ++q) sum[r][q] = vbfdotq_f32(sum[r][q], x, w[q]);
        }
      }
      for (int r = 0; r < rows; ++r) store_sums(sum[r], sums + r * tile_columns, add);
    }
  }
};
using Paired = PairedStrips<BFloat16, DotProducts>;

struct Halves {
  // sums[row][column] = sum over steps of a[row][step] b[step][column], in f16 as far as half_chain says.
  template <int rows>
  HS_TARGET_NEON_FP16 static void in_f16(Left a, const Cell* b, int64_t steps, float32x4_t (&sums)[rows][quads]) {
    for (bool add = false; !add || steps > 0; steps -= half_chain, add = true) {
      float16x8_t sum[rows][quads] = {};
      for (int64_t s = std::min(steps, half_chain); s > 0; --s, a.cells += a.step, b += tile_columns) {
        float16x8_t w[quads];
        for (int q = 0; q < quads; ++q) w[q] = vreinterpretq_f16_u32(vld1q_u32(b + 4 * q));
        for (int r = 0; r < rows; ++r) {
          const float16x8_t x = vreinterpretq_f16_u32(vdupq_n_u32(a.cells[r * a.row]));
          for (int q = 0; q < quads; ++q) sum[r][q] = vfmaq_f16(sum[r][q], x, w[q]);
        }
      }
      for (int r = 0; r < rows; ++r) {
        for (int q = 0; q < quads; ++q) {
          const float16x8_t pairs = sum[r][q];
          const float32x4_t folded = vcvt_f32_f16(vpadd_f16(vget_low_f16(pairs), vget_high_f16(pairs)));
          sums[r][q] = add ? vaddq_f32(sums[r][q], folded) : folded;
        }
      }
    }
  }

  // The same in f32.
  template <int rows>
  HS_TARGET_NEON_FP16 static void in_f32(Left a, const Cell* b, int64_t steps, float32x4_t (&sums)[rows][quads]) {
    const auto half = [](uint32x4_t pairs) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(pairs))); };
    for (int r = 0; r < rows; ++r) {
      for (int q = 0; q < quads; ++q) {
        float32x4_t sum = {};
        for (int64_t s = 0; s < steps; ++s) {
          const uint32x4_t x = vdupq_n_u32(a.cells[r * a.row + s * a.step]);
          const uint32x4_t w = vld1q_u32(b + s * tile_columns + 4 * q);
          sum = vfmaq_f32(sum, half(x), half(w));
          sum = vfmaq_f32(sum, half(vshrq_n_u32(x, 16)), half(vshrq_n_u32(w, 16)));
        }
        sums[r][q] = sum;
      }
    }
  }

  template <int rows, int vectors>
  HS_TARGET_NEON_FP16 static void multiply(Left a, const Cell* b, int64_t steps, float* to, bool add) {
    for (int v = 0; v < vectors; ++v, b += 16, to += 16) {
      float32x4_t sums[rows][quads], zero = {};  // NaN, if a sum is not finite
      in_f16(a, b, steps, sums);
      for (const auto& row : sums) {
        for (const float32x4_t sum : row) zero = vfmaq_n_f32(zero, sum, 0);
      }
      if (std::isnan(vaddvq_f32(zero))) in_f32(a, b, steps, sums);
      for (int r = 0; r < rows; ++r) store_sums(sums[r], to + r * tile_columns, add);
    }
  }
};
using HalfStrips = HalfProduct<Halves>;

bool supports_bf16(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && cpu_features().neon_bf16;
}
bool supports_f16(const Gemm& call) {
  return call.a.dtype() == DType::f16 && is_same_or_f32(call.a, call.c) && cpu_features().neon_fp16;
}

REGISTER_KERNEL(gemm, cpu, "neon_bf16",
                {.run = gemm_blocked<Paired>,
                 .supported = supports_bf16,
                 .workspace = workspace<Paired>,
                 .rank = rank_of_bf16_pairs(5),
                 .layout = "rows"});
REGISTER_KERNEL(gemm, cpu, "neon_fp16",
                {.run = gemm_blocked<HalfStrips>,
                 .supported = supports_f16,
                 .workspace = workspace<HalfStrips>,
                 .rank = -1,
                 .layout = "rows",
                 .error_growth = half_growth});

}  // namespace
}  // namespace hs

#endif
