#include "engine/symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "engine/printable.h"

namespace hs {

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto ones = static_cast<size_t>(std::countl_one(byte(0)));
  const size_t size = std::clamp<size_t>(ones, 1, 4);
  uint32_t code = byte(0) & (0x7fu >> ones);
  bool is_utf8 = ones != 1 && ones <= 4;
  for (size_t i = 1; i < size; ++i) {
    is_utf8 = is_utf8 && byte(i) >> 6 == 2;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};  // written with more bytes than needed: not UTF-8
  is_utf8 = is_utf8 && code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code >= 0xe000);
  return is_utf8 ? Character{text.substr(0, size), code, true} : Character{text.substr(0, 1), byte(0), false};
}

std::string as_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Character character = first_character(bytes);
    text += character.is_utf8 ? character.bytes : "\uFFFD";
    bytes.remove_prefix(character.bytes.size());
  }
  return text;
}

std::string EncodedText::left_out_text(const Vocabulary& vocabulary) const {
  if (left_out == 0) return "";
  return fmt::format("\"{}\"{} none of the model's {} symbols", printable_text(first_out),
                     left_out == 1 ? ", which is" : fmt::format(" and {} more, which are", left_out - 1),
                     vocabulary.size());
}

EncodedText encode(std::string_view text, const Vocabulary& vocabulary) {
  constexpr int32_t none = -1;
  std::array<int32_t, 256> of_byte;
  of_byte.fill(none);
  const auto number_of = [&](char byte) { return of_byte[static_cast<uint8_t>(byte)]; };
  std::map<std::string_view, uint16_t> of_character;  // of several bytes
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string& symbol = vocabulary[i];
    if (symbol.size() == 1) of_byte[static_cast<uint8_t>(symbol[0])] = static_cast<int32_t>(i);
    if (symbol.size() > 1) of_character[symbol] = static_cast<uint16_t>(i);
  }
  EncodedText result;
  while (!text.empty()) {
    const std::string_view character = first_character(text).bytes;
    text.remove_prefix(character.size());
    const auto found = character.size() > 1 ? of_character.find(character) : of_character.end();
    if (found != of_character.end()) {
      result.symbols.push_back(found->second);
    } else if (std::ranges::none_of(character, [&](char byte) { return number_of(byte) == none; })) {
      for (const char byte : character) result.symbols.push_back(static_cast<uint16_t>(number_of(byte)));
    } else if (result.left_out++ == 0) {
      result.first_out = character;
    }
  }
  return result;
}

}  // namespace hs
