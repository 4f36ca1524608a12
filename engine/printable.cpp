#include "engine/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace hs {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: `text` does not begin with a character of UTF-8
};

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc0 || byte(0) >= 0xf8 || text.size() < bytes) return {};
  uint32_t code = byte(0) & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};  // written with more bytes than needed: not UTF-8
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

// Direction marks and overrides, zero-width characters, line separators, tags.
bool is_hidden(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> ranges[] = {{0x061c, 0x061c},  {0x200b, 0x200f}, {0x2028, 0x202e},
                                                      {0x2060, 0x206f},  {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
                                                      {0xe0000, 0xe007f}};
  return std::ranges::any_of(ranges, [code](auto range) { return range.first <= code && code <= range.second; });
}

}  // namespace

std::string printable_text(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.bytes == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else if (is_control(character.code)) {
      shown += fmt::format("\\x{:02x}", character.code);
    } else if (is_hidden(character.code)) {
      shown += fmt::format("\\u{{{:04x}}}", character.code);
    } else {
      shown += text.substr(0, character.bytes);
    }
    text.remove_prefix(std::max<size_t>(character.bytes, 1));
  }
  return shown;
}

std::string printable(const std::filesystem::path& path) { return printable_text(path.native()); }

}  // namespace hs
