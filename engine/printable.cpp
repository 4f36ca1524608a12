#include "engine/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace hs {
namespace {

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
    if (!is_utf8 || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
      shown += fmt::format("\\x{:02x}", is_utf8 ? code : byte(0));
    } else if (is_hidden(code)) {
      shown += fmt::format("\\u{{{:04x}}}", code);
    } else {
      shown += text.substr(0, size);
    }
    text.remove_prefix(is_utf8 ? size : 1);
  }
  return shown;
}

std::string printable(const std::filesystem::path& path) { return printable_text(path.native()); }

}  // namespace hs
