// Characters of UTF-8, and the symbols of a text: what a model of one reads and writes. Used by data/formats/text.h,
// which makes a vocabulary, and models/generate.h, which writes with one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hs {

// A code point in UTF-8, or a byte that belongs to none.
struct Character {
  std::string_view bytes;  // of the text
  uint32_t code;           // of a byte that belongs to none, the byte
  bool is_utf8;            // false: a byte that belongs to none
};
// REQUIRES: text is not empty
Character first_character(std::string_view text);
// With U+FFFD, the replacement character, for each byte that belongs to none.
std::string as_utf8(std::string_view bytes);

// Symbol i of a text: a character, or in a text of bytes one byte. Distinct.
using Vocabulary = std::vector<std::string>;

// A text as the numbers of its symbols.
struct EncodedText {
  std::vector<uint16_t> symbols;
  int64_t left_out = 0;        // characters that are no symbols
  std::string first_out = {};  // the first of them

  // `"ä" and 2 more, which are none of the model's 65 symbols`, printable; empty: none was left out.
  std::string left_out_text(const Vocabulary& vocabulary) const;
};
// A character that is no symbol itself becomes one for each of its bytes if these are, else it is left out.
// REQUIRES: at most 65536 symbols
EncodedText encode(std::string_view text, const Vocabulary& vocabulary);

}  // namespace hs
