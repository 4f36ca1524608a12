// The random numbers: Philox against its authors' vectors, streams that do not overlap, permutations that are ones.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "engine/random.h"

namespace hs {
namespace {

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

static_assert(philox4x32(known_answers[2].counter, 0xa4093822, 0x299f31d0).word[3] == 0x24126ea1,
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

// A permutation as a list.
std::vector<uint64_t> order_of(uint64_t n, const RandomStream& stream) {
  const Permutation permutation(n, stream);
  std::vector<uint64_t> order(n);
  for (uint64_t i = 0; i < n; ++i) order[i] = permutation(i);
  return order;
}

bool is_permutation(const std::vector<uint64_t>& order) {
  std::vector<bool> seen(order.size());
  for (const uint64_t at : order) {
    if (at >= order.size() || seen[at]) return false;
    seen[at] = true;
  }
  return true;
}

// By how many standard deviations the counts are further from their common expectation than chance takes them
// (chi-square). Negative: closer.
double excess(const std::vector<int>& counts) {
  double sum = 0, squares = 0;
  for (const int count : counts) sum += count;
  const double expected = sum / static_cast<double>(counts.size()), freedom = static_cast<double>(counts.size()) - 1;
  for (const int count : counts) squares += (count - expected) * (count - expected) / expected;
  return (squares - freedom) / std::sqrt(2 * freedom);
}

TEST_CASE("a permutation reaches every position exactly once") {
  const RandomStream stream{7, RandomPurpose::shuffle, 0, 2, 0};
  for (uint64_t n = 1; n <= 300; ++n) {
    CAPTURE(n);
    CHECK(is_permutation(order_of(n, stream)));
  }
  // Around each size at which the grid gets more columns, primes, and sets that people have.
  for (const uint64_t n : {1023,  1024,  1025,  2047,  2048,  2049,  8191,  8192,   8193,   10007,  20000, 32767,
                           32768, 32769, 50000, 60000, 65535, 65536, 65537, 131071, 131072, 131073, 999983}) {
    CAPTURE(n);
    CHECK(is_permutation(order_of(n, stream)));
  }
}

TEST_CASE("a permutation of the largest n, 2^32, stays below it and repeats nothing") {
  for (const uint64_t n : {(uint64_t{1} << 32) - 1, uint64_t{1} << 32}) {
    const Permutation permutation(n, {7, RandomPurpose::shuffle, 0, 2, 0});
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      for (const uint64_t index : {i, n / 2 + i, n - 1 - i}) {
        const uint64_t at = permutation(index);
        CHECK(at < n);
        seen.insert(at);
      }
    }
    CHECK(seen.size() == 3000);
  }
}

TEST_CASE("permutations are those that a program in another language computes") {
  // Python, from the comment of Permutation and the definition of Philox; its integers have no width.
  const struct {
    uint64_t n, seed;
    uint32_t step;
    std::array<uint64_t, 10> expected;
  } rows[] = {
      {10, 3, 0, {8, 4, 0, 7, 1, 5, 3, 9, 6, 2}},
      {20000, 1, 2, {8474, 5341, 3764, 129, 19804, 3649, 458, 5615, 1059, 6352}},
      {uint64_t{1} << 32,
       0x123456789abcdef,
       7,
       {2713384966, 3709399371, 1061381204, 804773723, 4246649264, 2899149159, 1493383048, 1347998652, 104949710,
        3958370563}},
  };
  for (const auto& row : rows) {
    const Permutation permutation(row.n, {row.seed, RandomPurpose::shuffle, 0, row.step, 0});
    for (uint64_t i = 0; i < row.expected.size(); ++i) CHECK(permutation(i) == row.expected[i]);
  }
}

TEST_CASE("every order of a few is equally likely") {
  for (const uint64_t n : {2, 3, 4, 5, 6}) {
    std::map<std::vector<uint64_t>, int> seen;
    size_t orders = 1;
    for (uint64_t k = 2; k <= n; ++k) orders *= k;
    for (uint64_t seed = 0; seed < 40 * orders; ++seed) ++seen[order_of(n, {seed, RandomPurpose::shuffle, 0, 0, 0})];
    std::vector<int> counts;
    for (const auto& [order, count] : seen) counts.push_back(count);
    counts.resize(orders);  // those never seen
    CAPTURE(n);
    CHECK(excess(counts) < 5);
  }
}

TEST_CASE("two indices land independently of each other") {
  for (const uint64_t n : {9, 16, 31, 32}) {
    for (const uint64_t distance : {uint64_t{1}, uint64_t{2}, n - 1}) {
      std::vector<int> counts((n - 1) * n);  // by position of index 0, and the distance from there to the other's
      for (uint64_t seed = 0; seed < 20000; ++seed) {
        const Permutation permutation(n, {seed, RandomPurpose::shuffle, 0, 1, 0});
        const uint64_t at = permutation(0);
        ++counts[at * (n - 1) + (permutation(distance) + n - at) % n - 1];
      }
      CAPTURE(n);
      CAPTURE(distance);
      CHECK(excess(counts) < 5);
    }
  }
}

static_assert(Permutation(10, {3, RandomPurpose::shuffle, 0, 0, 0})(0) == 8, "usable in a constant expression");

}  // namespace
}  // namespace hs
