// The random numbers: Philox against its authors' vectors, streams that do not overlap, permutations that are ones.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include "engine/random.h"

namespace hs {
namespace {

constexpr bool equal(const Random4& a, const Random4& b) {
  for (int i = 0; i < 4; ++i) {
    if (a.word[i] != b.word[i]) return false;
  }
  return true;
}

struct KnownAnswer {
  Random4 counter;
  uint32_t key0, key1;
  Random4 expected;
};

// Random123 (github.com/DEShawResearch/random123), tests/kat_vectors, the three lines "philox4x32 10".
constexpr KnownAnswer known_answers[] = {
    {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     0xffffffff,
     0xffffffff,
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     0xa4093822,
     0x299f31d0,
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

static_assert(equal(philox4x32(known_answers[2].counter, known_answers[2].key0, known_answers[2].key1),
                    known_answers[2].expected),
              "Philox must be usable in a constant expression");

TEST_CASE("Philox4x32-10 gives the numbers that its authors published") {
  for (const KnownAnswer& row : known_answers) {
    const Random4 got = philox4x32(row.counter, row.key0, row.key1);
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      CHECK(got.word[i] == row.expected.word[i]);
    }
  }
}

TEST_CASE("number i of a stream is word i % 4 of block i / 4") {
  const RandomStream stream{77, RandomPurpose::dropout, 3, 4, 5};
  for (uint64_t i = 0; i < 1000; ++i) {
    CHECK(random_bits(stream, i) == random_block(stream, static_cast<uint32_t>(i / 4)).word[i % 4]);
  }
}

TEST_CASE("streams differ when any part of their name differs") {
  const RandomStream base{1, RandomPurpose::init, 0, 0, 0};
  std::vector<RandomStream> streams = {base};
  for (const auto purpose :
       {RandomPurpose::dropout, RandomPurpose::shuffle, RandomPurpose::synthetic, RandomPurpose::augment}) {
    streams.push_back(base);
    streams.back().purpose = purpose;
  }
  for (const uint32_t value : {1u, 2u, 255u, 65536u, 0xffffffu}) {
    streams.push_back(base);
    streams.back().layer = value;
    streams.push_back(base);
    streams.back().step = value;
    streams.push_back(base);
    streams.back().micro_step = value;
  }
  for (const uint64_t seed : {uint64_t{0}, uint64_t{2}, uint64_t{1} << 32, uint64_t{1} << 63 | 1}) {
    streams.push_back(base);
    streams.back().seed = seed;
  }
  // 64 numbers of each: among all of them, not even two neighbours may agree with two neighbours elsewhere.
  std::set<uint64_t> pairs;
  for (const RandomStream& stream : streams) {
    for (uint64_t i = 0; i < 64; i += 2) {
      pairs.insert(uint64_t{random_bits(stream, i)} << 32 | random_bits(stream, i + 1));
    }
  }
  CHECK(pairs.size() == streams.size() * 32);
}

TEST_CASE("a large layer number does not reach into another purpose") {
  // The purpose shares a word of the counter with the layer, which has 24 bits.
  const RandomStream last{1, RandomPurpose::init, 0xffffffu, 0, 0}, next{1, RandomPurpose::dropout, 0, 0, 0};
  CHECK(random_counter(last, 0).word[3] + 1 == random_counter(next, 0).word[3]);
  const RandomStream beyond{1, RandomPurpose::init, 0x2000005u, 0, 0}, five{1, RandomPurpose::init, 5, 0, 0};
  CHECK(random_counter(beyond, 0).word[3] == random_counter(five, 0).word[3]);
}

TEST_CASE("to_unit_float lies in [0, 1) on the grid of 2^-24") {
  CHECK(to_unit_float(0) == 0.0f);
  CHECK(to_unit_float(0xff) == 0.0f);
  CHECK(to_unit_float(0x100) == 0x1p-24f);
  CHECK(to_unit_float(0x80000000u) == 0.5f);
  CHECK(to_unit_float(0xffffffffu) == 1.0f - 0x1p-24f);
  CHECK(to_unit_float(0xffffffffu) < 1.0f);
}

TEST_CASE("the unit floats of a stream are uniform") {
  constexpr int count = 1 << 16, bins = 16;
  const RandomStream stream{2024, RandomPurpose::synthetic, 1, 2, 3};
  double sum = 0, squares = 0;
  std::array<int, bins> histogram{};
  for (int i = 0; i < count; ++i) {
    const double u = static_cast<double>(to_unit_float(random_bits(stream, static_cast<uint64_t>(i))));
    sum += u;
    squares += u * u;
    ++histogram[static_cast<std::size_t>(u * bins)];
  }
  // Bounds of 5 standard deviations: 0.289/sqrt(65536), 0.0745/sqrt(65536) and sqrt(4096 * 15/16).
  CHECK(sum / count > 0.5 - 5 * 0.289 / 256);
  CHECK(sum / count < 0.5 + 5 * 0.289 / 256);
  const double variance = squares / count - (sum / count) * (sum / count);
  CHECK(variance > 1.0 / 12 - 5 * 0.0745 / 256);
  CHECK(variance < 1.0 / 12 + 5 * 0.0745 / 256);
  for (const int entries : histogram) {
    CHECK(entries > count / bins - 5 * 62);
    CHECK(entries < count / bins + 5 * 62);
  }
}

bool is_permutation(uint64_t n, const RandomStream& stream) {
  std::vector<bool> seen(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = permute_index(i, n, stream);
    if (at >= n || seen[at]) return false;
    seen[at] = true;
  }
  return true;
}

TEST_CASE("permute_index reaches every position exactly once") {
  const RandomStream stream{7, RandomPurpose::shuffle, 0, 2, 0};
  for (uint64_t n = 1; n <= 300; ++n) {
    CAPTURE(n);
    CHECK(is_permutation(n, stream));
  }
  for (const uint64_t n : {uint64_t{20000}, uint64_t{60000}, uint64_t{65536}, uint64_t{65537}}) {
    CAPTURE(n);
    CHECK(is_permutation(n, stream));
  }
}

TEST_CASE("permute_index stays below n for the largest n, 2^32") {
  const RandomStream stream{7, RandomPurpose::shuffle, 0, 2, 0};
  const uint64_t n = uint64_t{1} << 32;
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t at = permute_index(n - 1 - i, n, stream);
    CHECK(at < n);
    seen.insert(at);
  }
  CHECK(seen.size() == 1000);
}

TEST_CASE("permutations differ by seed and by step, and none is the identity") {
  constexpr uint64_t n = 1000;
  const RandomStream base{1, RandomPurpose::shuffle, 0, 1, 0};
  RandomStream other_seed = base, other_step = base;
  other_seed.seed = 2;
  other_step.step = 2;
  int same_seed = 0, same_step = 0, fixed = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = permute_index(i, n, base);
    same_seed += at == permute_index(i, n, other_seed);
    same_step += at == permute_index(i, n, other_step);
    fixed += at == i;
  }
  // Two independent permutations agree in one place on average (Poisson): ten would be a miracle.
  CHECK(same_seed < 10);
  CHECK(same_step < 10);
  CHECK(fixed < 10);
}

TEST_CASE("every index is equally likely to land on every position") {
  constexpr uint64_t n = 10, seeds = 10000;
  std::array<std::array<int, n>, n> counts{};
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    for (uint64_t i = 0; i < n; ++i) ++counts[i][permute_index(i, n, {seed, RandomPurpose::shuffle, 0, 0, 0})];
  }
  for (const auto& row : counts) {
    for (const int count : row) {  // expected 1000, standard deviation 30
      CHECK(count > 1000 - 5 * 30);
      CHECK(count < 1000 + 5 * 30);
    }
  }
}

constexpr bool is_permutation_of_ten() {
  bool seen[10] = {};
  for (uint64_t i = 0; i < 10; ++i) seen[permute_index(i, 10, {3, RandomPurpose::shuffle, 0, 0, 0})] = true;
  for (const bool reached : seen) {
    if (!reached) return false;
  }
  return true;
}
static_assert(is_permutation_of_ten(), "permute_index must be usable in a constant expression");

}  // namespace
}  // namespace hs
