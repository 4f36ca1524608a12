// The tiles of kernels/cpu/amx.h in plain C++, as the manual describes TDPBF16PS: even and odd k are summed separately,
// and subnormals are treated as zero.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace hs::test {

struct EmulatedTiles {
  using Row = std::array<uint32_t, 16>;
  static inline thread_local std::array<std::array<Row, 16>, 8> tiles;
  static inline thread_local bool configured = false;
  static inline bool broken = false;  // as if a context switch had lost the tiles

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
  using Floats = float __attribute__((vector_size(64)));  // a row, whatever vectors the CPU has
  using Bits = uint32_t __attribute__((vector_size(64)));

  static void check_configured() {
    if (!configured) std::abort();  // on real AMX, an illegal instruction
  }
  // Vectors are passed by reference: their return convention depends on the instruction set.
  static void flush(Floats& x) {
    const Bits bits = __builtin_bit_cast(Bits, x);
    const Bits flushed = (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
    x = __builtin_bit_cast(Floats, flushed);
  }
  static void unpack(const Row& pairs, Floats& low, Floats& high) {
    const Bits bits = __builtin_bit_cast(Bits, pairs);
    low = __builtin_bit_cast(Floats, bits << 16);
    high = __builtin_bit_cast(Floats, bits & 0xffff0000u);
    flush(low);
    flush(high);
  }

  // Nearly all of the time of what runs on emulated tiles: compiled for wider vectors too, the widest that the CPU has
  // are used. Sanitizers instrument the choice, which is made before they have started.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define HS_WIDEST_VECTORS
#else
#define HS_WIDEST_VECTORS __attribute__((target_clones("default", "avx2", "avx512f")))
#endif

  // A product of two bf16 numbers is exact in f32, so multiplying and adding equals the fused instruction. Partial sums
  // are not flushed, which would take most of the time: the result differs if all of them are below 2^-126.
  HS_WIDEST_VECTORS static void add_products(const std::array<Row, 16>& a, const std::array<Row, 16>& b,
                                             std::array<Row, 16>& sum) {
    Floats even[16], odd[16];
    for (size_t k = 0; k < 16; ++k) unpack(b[k], even[k], odd[k]);
    for (size_t m = 0; m < 16; ++m) {
      Floats first, second, evens = {}, odds = {}, total = {};
      unpack(a[m], first, second);
      for (size_t k = 0; k < 16; ++k) {
        evens += first[k] * even[k];
        odds += second[k] * odd[k];
      }
      if (!broken) total = __builtin_bit_cast(Floats, sum[m]);
      for (Floats* part : {&evens, &odds, &total}) flush(*part);
      evens += odds;
      flush(evens);
      total += evens;
      flush(total);
      sum[m] = __builtin_bit_cast(Row, total);
    }
  }
};

}  // namespace hs::test
