// What the op table does not see on the CPU: the conversions of arrays to f16 and bf16 and back against the definition,
// how matrices are packed for vector units, and whether AMX is to be trusted.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "engine/cpu_features.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/pack.h"
#include "tests/support/emulated_tiles.h"

namespace hs::test {

TEST_CASE("arrays of f16 and bf16 widen and narrow as engine/float16.h says") {
  std::vector<Half> halves(65536);
  std::vector<BFloat16> brains(65536);
  for (uint32_t i = 0; i < 65536; ++i) halves[i].bits = brains[i].bits = static_cast<uint16_t>(i);
  std::vector<float> from_half(65536), from_brain(65536);
  widen(halves.data(), from_half.data(), 65536);
  widen(brains.data(), from_brain.data(), 65536);
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const bool signalling = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0 && !(i & 0x200);
    wrong += signalling ? !std::isnan(from_half[i])
                        : std::bit_cast<uint32_t>(from_half[i]) != std::bit_cast<uint32_t>(to_float(halves[i]));
    wrong += std::bit_cast<uint32_t>(from_brain[i]) != std::bit_cast<uint32_t>(to_float(brains[i]));
  }
  CHECK(wrong == 0);
  // Every upper half of a float, with the lower halves that decide how it is rounded.
  for (const uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> floats(65536);
    for (uint32_t i = 0; i < 65536; ++i) floats[i] = std::bit_cast<float>(i << 16 | low);
    narrow(floats.data(), halves.data(), 65536);
    narrow(floats.data(), brains.data(), 65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      wrong += halves[i].bits != to_half(floats[i]).bits;
      wrong += brains[i].bits != to_bfloat16(floats[i]).bits;
    }
    CHECK(wrong == 0);
  }
  for (int64_t count = 0; count < 40; ++count) {  // tails: nothing beyond the end is written
    std::vector<float> floats(64, 1.5f);
    std::vector<Half> half(64, Half{0x1234});
    std::vector<BFloat16> brain(64, BFloat16{0x1234});
    narrow(floats.data(), half.data(), count);
    narrow(floats.data(), brain.data(), count);
    for (int64_t i = 0; i < 64; ++i) {
      const size_t at = static_cast<size_t>(i);
      wrong += half[at].bits != (i < count ? 0x3e00 : 0x1234);
      wrong += brain[at].bits != (i < count ? 0x3fc0 : 0x1234);
    }
    std::vector<float> wide(64, 7.0f);
    widen(half.data(), wide.data(), count);
    for (int64_t i = 0; i < 64; ++i) wrong += wide[static_cast<size_t>(i)] != (i < count ? 1.5f : 7.0f);
  }
  CHECK(wrong == 0);
}

TEST_CASE("interleave and transpose") {
  std::vector<uint16_t> matrix(5 * 40);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i + 1);
  for (const int64_t rows : {1, 2, 5}) {
    for (const int64_t count : {1, 16, 23, 40}) {
      std::vector<uint32_t> pairs(3 * 50, 7);
      interleave_rows(matrix.data(), 40, rows, count, pairs.data(), 50);
      for (int64_t i = 0; i < 150; ++i) {
        const int64_t row = i / 50, column = i % 50;
        const auto value = [&](int64_t r) {
          return column < count && r < rows ? uint32_t{matrix[static_cast<size_t>(r * 40 + column)]} : 0;
        };
        const bool written = 2 * row < rows && column < round_up(count, 16);
        CHECK(pairs[static_cast<size_t>(i)] == (written ? value(2 * row) | value(2 * row + 1) << 16 : 7));
      }
    }
  }
  std::vector<uint32_t> from(32 * 50), to(48 * 40);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i);
  transpose(from.data(), 50, 30, 33, to.data(), 40);
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 48; ++j) CHECK(to[j * 40 + i] == from[i * 50 + j]);
  }
}

TEST_CASE("the self-test of AMX accepts tiles that multiply and refuses tiles that forget") {
  CHECK(amx::tiles_multiply<EmulatedTiles>());
  EmulatedTiles::broken = true;
  CHECK_FALSE(amx::tiles_multiply<EmulatedTiles>());
  EmulatedTiles::broken = false;
#if defined(__x86_64__)
  CHECK(amx::is_usable() <= cpu_features().amx_bf16);
#endif
}

}  // namespace hs::test
