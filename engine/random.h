// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number is a pure function of (seed, purpose, layer, step, micro-step, element), the same on CPU and
// GPU; there is no state to save, to restore or to disturb. The known-answer test uses the authors' vectors.
#pragma once

#include <cstdint>

#include "engine/host_device.h"

namespace hs {

struct Random4 {
  uint32_t word[4];
};

inline constexpr uint32_t philox_multiplier0 = 0xD2511F53u, philox_multiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t philox_key0 = 0x9E3779B9u, philox_key1 = 0xBB67AE85u;  // added to the key each round

// The block cipher itself: counter and key in, four independent 32-bit numbers out.
HS_HOST_DEVICE constexpr Random4 philox4x32(Random4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{philox_multiplier0} * counter.word[0];
    const uint64_t product1 = uint64_t{philox_multiplier1} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += philox_key0;
    key1 += philox_key1;
  }
  return counter;
}

// The purpose of a stream of numbers; streams of different purposes never overlap.
enum class RandomPurpose : uint8_t { init = 1, dropout = 2, shuffle = 3, synthetic = 4, augment = 5 };

struct RandomStream {
  uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::init;
  uint32_t layer = 0;  // below 2^24: which layer, parameter or sample
  uint32_t step = 0;
  uint32_t micro_step = 0;
};

HS_HOST_DEVICE constexpr Random4 random_counter(const RandomStream& stream, uint32_t block) {
  const uint32_t what = static_cast<uint32_t>(stream.purpose) << 24 | (stream.layer & 0xffffffu);
  return {{block, stream.micro_step, stream.step, what}};
}

// Numbers 4*block .. 4*block+3 of a stream.
HS_HOST_DEVICE constexpr Random4 random_block(const RandomStream& stream, uint32_t block) {
  return philox4x32(random_counter(stream, block), static_cast<uint32_t>(stream.seed),
                    static_cast<uint32_t>(stream.seed >> 32));
}

HS_HOST_DEVICE constexpr uint32_t random_bits(const RandomStream& stream, uint64_t index) {
  return random_block(stream, static_cast<uint32_t>(index / 4)).word[index % 4];
}

// Uniform in [0, 1), a multiple of 2^-24: exact in float.
HS_HOST_DEVICE constexpr float to_unit_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Position `index` of a random permutation of 0 .. n-1, without storing it: a Feistel network on the smallest even
// number of bits that covers n, walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). REQUIRES: index < n <= 2^32.
HS_HOST_DEVICE constexpr uint64_t permute_index(uint64_t index, uint64_t n, const RandomStream& stream) {
  uint32_t half_bits = 1;
  while ((uint64_t{1} << (2 * half_bits)) < n) ++half_bits;
  const uint32_t mask = half_bits == 32 ? 0xffffffffu : (1u << half_bits) - 1u;
  do {
    uint32_t left = static_cast<uint32_t>(index >> half_bits) & mask;
    uint32_t right = static_cast<uint32_t>(index) & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      RandomStream keyed = stream;
      keyed.micro_step = round;
      const uint32_t next = left ^ (random_block(keyed, right).word[0] & mask);
      left = right;
      right = next;
    }
    index = uint64_t{left} << half_bits | right;
  } while (index >= n);
  return index;
}

}  // namespace hs
