// Philox4x32-10 (engine/random.h) on vectors: a 64-bit lane computes a block. It holds a word of the block's counter in
// its lower half and anything in its upper half, because the product of two lower halves ignores the upper ones:
//   product = multiplier * word     upper half: the high word, which a shift brings down; lower half: the low word
// So a round is two products, two shifts and four XORs for all lanes, and nothing is packed before the last round.
// No `#pragma once`: a file that kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA
// part, and engine/random.h before it.
namespace hs::HS_ISA {

#if HS_VECTOR_BYTES >= 32
using Words = uint64_t __attribute__((vector_size(HS_VECTOR_BYTES)));

inline Words in_all_lanes(uint32_t word) { return word - Words{}; }

inline Words multiply_lower_halves(Words a, Words b) {
#if HS_VECTOR_BYTES == 64
  return reinterpret_cast<Words>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#endif
}

// What the blocks of a stream have in common, in all lanes: the counter but for its first word, the keys of each round.
struct PhiloxStream {
  Words counter[4], key0[10], key1[10];
  explicit PhiloxStream(const RandomStream& stream) {
    const Random4 start = random_counter(stream, 0);
    for (int w = 1; w < 4; ++w) counter[w] = in_all_lanes(start.word[w]);
    auto low = static_cast<uint32_t>(stream.seed), high = static_cast<uint32_t>(stream.seed >> 32);
    for (int round = 0; round < 10; ++round, low += philox_key0, high += philox_key1) {
      key0[round] = in_all_lanes(low);
      key1[round] = in_all_lanes(high);
    }
  }
};

// words[w][v]: word w of the blocks in the lanes of vector v. Two vectors, because a round waits for its products, and
// those of the other vector fill the wait.
struct LaneBlocks {
  Words words[4][2];
};

// Blocks first + order and, in the second vector, as many further on as a vector has lanes.
inline LaneBlocks random_blocks(const PhiloxStream& stream, uint32_t first, Words order) {
  const Words multiplier0 = in_all_lanes(philox_multiplier0), multiplier1 = in_all_lanes(philox_multiplier1);
  LaneBlocks c;
  for (uint32_t v = 0; v < 2; ++v) {
    c.words[0][v] = in_all_lanes(first + v * HS_VECTOR_BYTES / 8) + order;
    for (int w = 1; w < 4; ++w) c.words[w][v] = stream.counter[w];
  }
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    for (int v = 0; v < 2; ++v) {
      const Words product0 = multiply_lower_halves(multiplier0, c.words[0][v]);
      const Words product1 = multiply_lower_halves(multiplier1, c.words[2][v]);
      c.words[0][v] = product1 >> 32 ^ c.words[1][v] ^ stream.key0[round];
      c.words[1][v] = product1;
      c.words[2][v] = product0 >> 32 ^ c.words[3][v] ^ stream.key1[round];
      c.words[3][v] = product0;
    }
  }
  return c;
}
#else
using PhiloxStream = RandomStream;
#endif

struct Bits128 {
  uint64_t half[2];  // bit i is bit i % 64 of half i / 64
};

// 16 blocks of a stream as 128 numbers of 16 bits: of each block the words in order, of each word the lower half first.
// Bit i is set if number i is at least `limit`. REQUIRES: limit < 65536
inline Bits128 numbers_at_least(uint32_t limit, const PhiloxStream& stream, uint32_t first_block) {
  Bits128 bits;
#if HS_VECTOR_BYTES == 64
  // The interleaving takes the even lanes first: they get the first four blocks.
  const LaneBlocks blocks = random_blocks(stream, first_block, Words{0, 4, 1, 5, 2, 6, 3, 7});
  const __m512i limits = _mm512_set1_epi16(static_cast<int16_t>(limit));
  for (int v = 0; v < 2; ++v) {
    const auto words = [&](int w) { return reinterpret_cast<__m512i>(blocks.words[w][v]); };
    const __m512i words01 = _mm512_mask_shuffle_epi32(words(0), 0xaaaa, words(1), _MM_PERM_CCAA);
    const __m512i words23 = _mm512_mask_shuffle_epi32(words(2), 0xaaaa, words(3), _MM_PERM_CCAA);
    const uint64_t even = _mm512_cmpge_epu16_mask(_mm512_unpacklo_epi64(words01, words23), limits);
    const uint64_t odd = _mm512_cmpge_epu16_mask(_mm512_unpackhi_epi64(words01, words23), limits);
    bits.half[v] = odd << 32 | even;
  }
#elif HS_VECTOR_BYTES == 32
  const __m256i limits = _mm256_set1_epi16(static_cast<int16_t>(limit));
  for (uint32_t half = 0; half < 2; ++half) {
    const LaneBlocks blocks = random_blocks(stream, first_block + 8 * half, Words{0, 1, 2, 3});
    const auto bits_of = [&](int v) {
      const auto words = [&](int w) { return reinterpret_cast<__m256i>(blocks.words[w][v]); };
      const __m256i words01 = _mm256_blend_epi32(words(0), _mm256_slli_epi64(words(1), 32), 0xaa);
      const __m256i words23 = _mm256_blend_epi32(words(2), _mm256_slli_epi64(words(3), 32), 0xaa);
      const auto passed = [&](__m256i number) { return _mm256_cmpeq_epi16(_mm256_max_epu16(number, limits), number); };
      const __m256i even = passed(_mm256_unpacklo_epi64(words01, words23));
      const __m256i odd = passed(_mm256_unpackhi_epi64(words01, words23));
      // Packing alternates between the two, whose halves are blocks 0 and 2, and 1 and 3.
      return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(even, odd)));
    };
    bits.half[half] = uint64_t{bits_of(1)} << 32 | bits_of(0);
  }
#else
  for (uint32_t half = 0; half < 2; ++half) {
    bits.half[half] = 0;
    for (uint32_t b = 8; b-- > 0;) {
      const Random4 block = random_block(stream, first_block + 8 * half + b);
      for (int i = 8; i-- > 0;) {
        const bool passed = (block.word[i / 2] >> (i % 2 * 16) & 0xffff) >= limit;
        bits.half[half] = bits.half[half] << 1 | passed;
      }
    }
  }
#endif
  return bits;
}

}  // namespace hs::HS_ISA
