// The tiles of kernels/amx.h in plain C++, as the manual describes TDPBF16PS: sums of the even and of the odd k apart,
// subnormal numbers taken for zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace hs::test {

struct EmulatedTiles {
  using Row = std::array<uint32_t, 16>;
  static inline thread_local std::array<std::array<Row, 16>, 8> tiles;
  static inline thread_local bool configured = false;
  static inline bool broken = false;  // as if a switch of threads had lost the tiles

  static void configure() { configured = true; }
  static void release() { configured = false; }
  template <int tile>
  static void zero() {
    check_configured();
    tiles[tile] = {};
  }
  template <int tile>
  static void load(const void* from, int64_t stride) {
    check_configured();
    for (int64_t i = 0; i < 16; ++i) std::memcpy(&tiles[tile][i], static_cast<const uint8_t*>(from) + i * stride, 64);
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    check_configured();
    for (int64_t i = 0; i < 16; ++i) std::memcpy(static_cast<uint8_t*>(to) + i * stride, &tiles[tile][i], 64);
  }
  template <int sum, int a, int b>
  static void multiply() {
    check_configured();
    add_products(tiles[a], tiles[b], tiles[sum]);
  }

 private:
  static void check_configured() {
    if (!configured) std::abort();  // on a machine with AMX, an illegal instruction
  }
  // On bits, so that loops over n become vector instructions.
  static float flushed_bits(uint32_t bits) {
    return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  }
  static float flushed(float x) { return flushed_bits(std::bit_cast<uint32_t>(x)); }
  static float low(uint32_t pair) { return flushed_bits(pair << 16); }
  static float high(uint32_t pair) { return flushed_bits(pair & 0xffff0000u); }

  // A product of two bf16 numbers is exact in f32, so that a multiplication and an addition are the fused instruction.
  static void add_products(const std::array<Row, 16>& a, const std::array<Row, 16>& b, std::array<Row, 16>& sum) {
    alignas(64) float even[16][16], odd[16][16];
    for (size_t k = 0; k < 16; ++k) {
      for (size_t n = 0; n < 16; ++n) even[k][n] = low(b[k][n]), odd[k][n] = high(b[k][n]);
    }
    for (size_t m = 0; m < 16; ++m) {
      alignas(64) float evens[16] = {}, odds[16] = {};
      for (size_t k = 0; k < 16; ++k) {
        const float first = low(a[m][k]), second = high(a[m][k]);
        for (size_t n = 0; n < 16; ++n) evens[n] = flushed(evens[n] + first * even[k][n]);
        for (size_t n = 0; n < 16; ++n) odds[n] = flushed(odds[n] + second * odd[k][n]);
      }
      for (size_t n = 0; n < 16; ++n) {
        const float before = broken ? 0 : flushed_bits(sum[m][n]);
        sum[m][n] = std::bit_cast<uint32_t>(flushed(before + flushed(evens[n] + odds[n])));
      }
    }
  }
};

}  // namespace hs::test
