// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number is a pure function of (seed, purpose, layer, step, micro-step, element), the same on CPU and
// GPU; there is no state to save, to restore or to disturb. The known-answer test uses the authors' vectors.
#pragma once

#include <cstdint>

#include "engine/host_device.h"

namespace hs {

struct Random4 {     // a counter, or what the cipher makes of it
  uint32_t word[4];  // 32 bits each
};

inline constexpr uint32_t philox_multiplier0 = 0xD2511F53u, philox_multiplier1 = 0xCD9E8D57u;  // of each round
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

// Which stream; equal ones give equal numbers.
struct RandomStream {
  uint64_t seed = 0;                            // the run's
  RandomPurpose purpose = RandomPurpose::init;  // what the numbers are for
  uint32_t layer = 0;                           // below 2^24: which layer, parameter or sample
  uint32_t step = 0;        // of the optimizer; where there is none, what else tells numbers apart, such as the epoch
  uint32_t micro_step = 0;  // micro-batch of the step; where there is none, the sample or 0
};

HS_HOST_DEVICE constexpr Random4 random_counter(const RandomStream& stream, uint32_t block) {  // the cipher's input
  const uint32_t what = static_cast<uint32_t>(stream.purpose) << 24 | (stream.layer & 0xffffffu);
  return {{block, stream.micro_step, stream.step, what}};
}

// Words 4*block .. 4*block+3 of a stream.
HS_HOST_DEVICE constexpr Random4 random_block(const RandomStream& stream, uint32_t block) {
  return philox4x32(random_counter(stream, block), static_cast<uint32_t>(stream.seed),
                    static_cast<uint32_t>(stream.seed >> 32));
}

// Word `index` of a stream.
HS_HOST_DEVICE constexpr uint32_t random_bits(const RandomStream& stream, uint64_t index) {
  return random_block(stream, static_cast<uint32_t>(index / 4)).word[index % 4];
}

// The words of a stream in turn: each block is computed once. One thread at a time.
class RandomSequence {
 public:
  explicit RandomSequence(const RandomStream& stream) : stream_(stream) {}  // at random_bits(stream, 0)
  uint32_t next() {                                                         // at most 2^32 times
    if (next_ % 4 == 0) block_ = random_block(stream_, next_ / 4);
    return block_.word[next_++ % 4];
  }

 private:
  RandomStream stream_;
  Random4 block_{};
  uint32_t next_ = 0;
};

// Uniform in [0, 1), a multiple of 2^-24: exact in float.
HS_HOST_DEVICE constexpr float to_unit_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A random permutation of 0 .. n-1, computed index by index: nothing is stored but the keys.
//
// A generalised Feistel network (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002): the index is
// a row and a column of a grid with a few more cells than n, and each round changes one of the two by a keyed hash of
// the other, so that it can be undone. A result outside of 0 .. n-1 is encrypted again until it lands inside. The
// number of columns is a power of two near sqrt(n), the number of rows any number: the grid has less than one row to
// spare.
//
// The hash multiplies and shifts (Dietzfelbinger, Hagerup, Katajainen, Penttonen, "A reliable randomized algorithm for
// the closest-pair problem", J. Algorithms 25, 1997): (a * x + b) >> 32 with random a and b gives any two different x
// two independent numbers. Its input is scrambled first; without this, neighbouring indices stay neighbours. The
// smallest grid has 32 x 32 cells: on less, six rounds of so small halves are not random enough
// (tests/engine/random.cpp).
class Permutation {
 public:
  // REQUIRES: 1 <= n <= 2^32
  HS_HOST_DEVICE constexpr Permutation(uint64_t n, const RandomStream& stream) : n_(n) {
    while (n >> (2 * column_bits_) > 1) ++column_bits_;
    const uint64_t rows = ((n - 1) >> column_bits_) + 1;
    if (rows > rows_) rows_ = static_cast<uint32_t>(rows);
    for (uint32_t round = 0; round < rounds; ++round) {
      const Random4 random = random_block(stream, round);
      factor_[round] = uint64_t{random.word[0]} << 32 | random.word[1];
      offset_[round] = uint64_t{random.word[2]} << 32 | random.word[3];
    }
  }

  // Where `index` goes. REQUIRES: index < n
  HS_HOST_DEVICE constexpr uint64_t operator()(uint64_t index) const {
    do {
      auto row = static_cast<uint32_t>(index >> column_bits_);
      uint32_t column = static_cast<uint32_t>(index) & ((1u << column_bits_) - 1u);
      for (uint32_t round = 0; round < rounds; round += 2) {
        row += static_cast<uint32_t>(uint64_t{hash(round, column)} * rows_ >> 32);
        if (row >= rows_) row -= rows_;
        column ^= hash(round + 1, row) >> (32 - column_bits_);
      }
      index = uint64_t{row} << column_bits_ | column;
    } while (index >= n_);
    return index;
  }

 private:
  static constexpr uint32_t rounds = 6;

  HS_HOST_DEVICE constexpr uint32_t hash(uint32_t round, uint32_t x) const {
    x *= 0x9E3779B1u;  // odd: no two x become one
    x ^= x >> 16;
    return static_cast<uint32_t>((factor_[round] * x + offset_[round]) >> 32);
  }

  uint64_t n_;
  uint32_t column_bits_ = 5;
  uint32_t rows_ = 32;
  uint64_t factor_[rounds] = {}, offset_[rounds] = {};
};

}  // namespace hs
