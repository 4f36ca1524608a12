#include "kernels/cpu/pack.h"

#include <algorithm>

#include "engine/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hs {
namespace {

constexpr uint16_t bf16_one = 0x3f80;

#if defined(__x86_64__)

HS_TARGET_AVX512 void interleave_rows_avx512(const uint16_t* from, int64_t from_stride, int64_t rows, int64_t count,
                                             Cell* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; row += 2, from += 2 * from_stride, to += to_stride) {
    const __mmask16 has_second = row + 1 < rows ? 0xffff : 0;
    for (int64_t i = 0; i < count; i += 16) {
      const auto valid = static_cast<__mmask16>(count - i >= 16 ? 0xffff : (1 << (count - i)) - 1);
      const __m256i first = _mm256_maskz_loadu_epi16(valid, from + i);
      const __m256i second = _mm256_maskz_loadu_epi16(valid & has_second, from + from_stride + i);
      _mm512_storeu_si512(
          to + i, _mm512_or_si512(_mm512_cvtepu16_epi32(first), _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16)));
    }
  }
}

HS_TARGET_AVX512 void interleave_with_ones_avx512(const uint16_t* from, int64_t from_stride, int64_t count, Cell* to) {
  for (int64_t i = 0; i < count; i += 8) {
    const auto valid = static_cast<__mmask8>(count - i >= 8 ? 0xff : (1 << (count - i)) - 1);
    __m512i four = _mm512_set1_epi64(bf16_one);
    for (int row = 2; row >= 0; --row) {
      const __m128i elements = _mm_maskz_loadu_epi16(valid, from + row * from_stride + i);
      four = _mm512_or_si512(_mm512_slli_epi64(four, 16), _mm512_cvtepu16_epi64(elements));
    }
    _mm512_mask_storeu_epi64(to + 2 * i, valid, four);
  }
}

// 16 x 16 cells in 64 shuffles: each round doubles the size of the blocks that are in place.
HS_TARGET_AVX512 void transpose_block_avx512(const Cell* from, int64_t from_stride, Cell* to, int64_t to_stride) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * from_stride);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // r[i + j]: column 4 q + j of the rows i .. i + 3, in quarter q
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[j + 4], 0x88), b = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[j], r[j + 4], 0xdd), d = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0xdd);
    t[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[j + 8] = _mm512_shuffle_i32x4(a, b, 0xdd);
    t[j + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
    t[j + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * to_stride, t[i]);
}

void transpose_4x4(const Cell* from, int64_t from_stride, Cell* to, int64_t to_stride) {
  __m128 r[4];
  for (int i = 0; i < 4; ++i) r[i] = _mm_loadu_ps(reinterpret_cast<const float*>(from + i * from_stride));
  _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(reinterpret_cast<float*>(to + i * to_stride), r[i]);
}

#endif

void transpose_block(const Cell* from, int64_t from_stride, Cell* to, int64_t to_stride) {
#if defined(__x86_64__)
  if (cpu_features().avx512) return transpose_block_avx512(from, from_stride, to, to_stride);
  for (int64_t j = 0; j < 16; j += 4) {
    for (int64_t i = 0; i < 16; i += 4) {
      transpose_4x4(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
    }
  }
#else
  for (int64_t j = 0; j < 16; ++j) {
    for (int64_t i = 0; i < 16; ++i) to[j * to_stride + i] = from[i * from_stride + j];
  }
#endif
}

}  // namespace

void interleave_rows(const uint16_t* from, int64_t from_stride, int64_t rows, int64_t count, Cell* to,
                     int64_t to_stride) {
#if defined(__x86_64__)
  if (cpu_features().avx512) return interleave_rows_avx512(from, from_stride, rows, count, to, to_stride);
#endif
  for (int64_t row = 0; row < rows; row += 2, from += 2 * from_stride, to += to_stride) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = from[i] | (row + 1 < rows ? static_cast<uint32_t>(from[from_stride + i]) << 16 : 0);
    }
    std::fill(to + count, to + round_up(count, 16), Cell{0});
  }
}

void interleave_with_ones(const uint16_t* from, int64_t from_stride, int64_t count, Cell* to) {
#if defined(__x86_64__)
  if (cpu_features().avx512) return interleave_with_ones_avx512(from, from_stride, count, to);
#endif
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i] = from[i] | static_cast<uint32_t>(from[from_stride + i]) << 16;
    to[2 * i + 1] = from[2 * from_stride + i] | static_cast<uint32_t>(bf16_one) << 16;
  }
}

void transpose(const Cell* from, int64_t from_stride, int64_t rows, int64_t columns, Cell* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; i += 16) {
    for (int64_t j = 0; j < columns; j += 16) {
      transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
    }
  }
}

}  // namespace hs
