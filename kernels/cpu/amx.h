// The tile registers of AMX: eight matrices of 16 rows of 64 bytes, and one instruction that multiplies 16 x 32 bf16
// values by 32 x 16 into 16 x 16 f32 sums. Kernels take this small interface as a template parameter, so that a test
// without AMX can run them on tiles emulated in plain C++ (tests/emulated_units.cpp). Tiles are always whole: elements
// beyond a matrix are packed as zeros. Internal to kernels/*/amx.*.
#pragma once

#include <cstdint>
#include <cstdio>

#include "engine/cpu_features.h"
#include "engine/float16.h"
#include "engine/non_copyable.h"

namespace hs::amx {

inline constexpr int64_t tile_rows = 16;   // of every tile
inline constexpr int64_t tile_depth = 32;  // values of K in one product

// How the kernels use the eight tiles: 2 x 2 sums, each pair of A and B tiles serves four products.
//   sums: 0 = A4 B6, 1 = A4 B7, 2 = A5 B6, 3 = A5 B7

#if defined(__x86_64__)

// In assembly instead of intrinsics: no function needs to be compiled for AMX, and everything inlines.
struct HardwareTiles {
  // Before and after a thread's use of the tiles. While configured, they add 8 KiB to every context switch.
  static void configure() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  static void release() { asm volatile("tilerelease"); }

  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  // 16 rows of 64 bytes, `stride` bytes apart.
  template <int tile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  // sum[m][n] += a[m][k] b[k][n] over 32 k; a: (16, 32) bf16, b: (16, 16) pairs along k, sum: (16, 16) f32.
  template <int sum, int a, int b>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

#endif

// The tiles are configured while this is alive.
template <class Tiles>
struct Session : NonCopyable {
  Session() { Tiles::configure(); }
  ~Session() { Tiles::release(); }
};

// A block of 2 x 2 sums, of which `row_tiles` x `column_tiles` are computed. Strides are in bytes; the second row of
// sums begins `next_rows` floats after the first.
template <class Tiles, int row_tiles, int column_tiles>
struct Block {
  static void load_sums(const float* from, int64_t row_stride, int64_t next_rows) {
    Tiles::template load<0>(from, row_stride);
    if constexpr (column_tiles == 2) Tiles::template load<1>(from + 16, row_stride);
    if constexpr (row_tiles == 2) Tiles::template load<2>(from + next_rows, row_stride);
    if constexpr (row_tiles == 2 && column_tiles == 2) Tiles::template load<3>(from + next_rows + 16, row_stride);
  }
  static void zero_sums() {
    Tiles::template zero<0>();
    if constexpr (column_tiles == 2) Tiles::template zero<1>();
    if constexpr (row_tiles == 2) Tiles::template zero<2>();
    if constexpr (row_tiles == 2 && column_tiles == 2) Tiles::template zero<3>();
  }
  static void store_sums(float* to, int64_t row_stride, int64_t next_rows) {
    Tiles::template store<0>(to, row_stride);
    if constexpr (column_tiles == 2) Tiles::template store<1>(to + 16, row_stride);
    if constexpr (row_tiles == 2) Tiles::template store<2>(to + next_rows, row_stride);
    if constexpr (row_tiles == 2 && column_tiles == 2) Tiles::template store<3>(to + next_rows + 16, row_stride);
  }
  // One product along K. a and b: the first tiles; the second ones begin a_next and b_next bytes later.
  static void multiply(const void* a, int64_t a_stride, int64_t a_next, const void* b, int64_t b_stride,
                       int64_t b_next) {
    const auto* a_bytes = static_cast<const uint8_t*>(a);
    const auto* b_bytes = static_cast<const uint8_t*>(b);
    Tiles::template load<4>(a_bytes, a_stride);
    Tiles::template load<6>(b_bytes, b_stride);
    Tiles::template multiply<0, 4, 6>();
    if constexpr (column_tiles == 2) {
      Tiles::template load<7>(b_bytes + b_next, b_stride);
      Tiles::template multiply<1, 4, 7>();
    }
    if constexpr (row_tiles == 2) {
      Tiles::template load<5>(a_bytes + a_next, a_stride);
      Tiles::template multiply<2, 5, 6>();
      if constexpr (column_tiles == 2) Tiles::template multiply<3, 5, 7>();
    }
  }
};

// Calls body.operator()<Block>() with the block of the requested size; both are 1 or 2.
template <class Tiles, class Body>
void with_block(int64_t row_tiles, int64_t column_tiles, const Body& body) {
  if (row_tiles == 2) {
    if (column_tiles == 2) {
      body.template operator()<Block<Tiles, 2, 2>>();
    } else {
      body.template operator()<Block<Tiles, 2, 1>>();
    }
  } else if (column_tiles == 2) {
    body.template operator()<Block<Tiles, 1, 2>>();
  } else {
    body.template operator()<Block<Tiles, 1, 1>>();
  }
}

// Checks a small product against plain arithmetic, several times. On small integers, so any order of additions gives
// the same bits.
template <class Tiles>
bool tiles_multiply() {
  BFloat16 a[16][32], b[16][32];  // b in pairs: b[k / 2][2 n + k % 2]
  float expected[16][16], got[16][16];
  const auto value = [](int64_t row, int64_t k) { return static_cast<float>((row * 7 + k * 3) % 17 - 8); };
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t k = 0; k < 32; ++k) {
      a[i][k] = to_bfloat16(value(i, k));
      b[k / 2][2 * i + k % 2] = to_bfloat16(value(k, i + 5));
    }
  }
  for (int64_t m = 0; m < 16; ++m) {
    for (int64_t n = 0; n < 16; ++n) {
      expected[m][n] = 1;
      for (int64_t k = 0; k < 32; ++k) expected[m][n] += value(m, k) * value(k, n + 5);
    }
  }
  bool same = true;
  for (int round = 0; round < 100 && same; ++round) {
    for (auto& row : got) {
      for (float& x : row) x = 1;
    }
    const Session<Tiles> session;
    Block<Tiles, 1, 1>::load_sums(&got[0][0], sizeof got[0], 0);
    Block<Tiles, 1, 1>::multiply(a, sizeof a[0], 0, b, sizeof b[0], 0);
    Block<Tiles, 1, 1>::store_sums(&got[0][0], sizeof got[0], 0);
    for (int64_t i = 0; i < 256; ++i) same = same && got[i / 16][i % 16] == expected[i / 16][i % 16];
  }
  return same;
}

#if defined(__x86_64__)

// Whether the "amx" variants may run: cpu_features().amx_bf16, and the first call found that the tiles multiply
// correctly. If they do not, stderr says so once.
inline bool is_usable() {
  static const bool usable = [] {
    if (!cpu_features().amx_bf16) return false;
    if (tiles_multiply<HardwareTiles>()) return true;
    std::fputs(
        "halfstep: WARNING: the AMX tiles of this machine give wrong products and are not used; HALFSTEP_ISA="
        "avx512_bf16 switches them off without this test\n",
        stderr);
    return false;
  }();
  return usable;
}

#endif

}  // namespace hs::amx
