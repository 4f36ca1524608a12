// A text that follows a rule: each symbol is the one two places before it, plus what a coin says, so that its entropy
// is ln 2 per symbol. A model that knows the last symbol alone cannot get below ln 11, and one below ln 2 has seen what
// it predicts.
#pragma once

#include <string_view>
#include <vector>

#include "data/io/memory_source.h"
#include "engine/random.h"

namespace hs::test {

inline constexpr int64_t rule_symbols = 11;

// Windows of context + 1 symbols, one after the other; `which` tells texts apart.
inline MemorySource rule_text(int64_t windows, int64_t context, uint32_t which = 0) {
  const RandomStream stream{21, RandomPurpose::synthetic, which, 0, 0};
  std::vector<uint8_t> bytes;
  std::vector<int32_t> labels;
  int64_t a = 1, b = 2;
  uint64_t at = 0;
  for (int64_t n = 0; n < windows; ++n) {
    for (int64_t t = 0; t <= context; ++t) {
      const int64_t next = (a + random_bits(stream, at++) % 2) % rule_symbols;
      a = b;
      b = next;
      bytes.push_back(static_cast<uint8_t>(next));
    }
    labels.push_back(bytes.back());
  }
  SampleInfo info{{1, context + 1, 1}, "rule", "a rule"};
  info.classes = static_cast<int>(rule_symbols);
  for (const char symbol : std::string_view("abcdefghijk")) info.vocabulary.emplace_back(1, symbol);
  return {std::move(info), std::move(bytes), std::move(labels)};
}

}  // namespace hs::test
