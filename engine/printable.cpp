#include "engine/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/symbols.h"

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
    const auto [bytes, code, is_utf8] = first_character(text);
    if (!is_utf8 || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
      shown += fmt::format("\\x{:02x}", code);
    } else if (is_hidden(code)) {
      shown += fmt::format("\\u{{{:04x}}}", code);
    } else {
      shown += bytes;
    }
    text.remove_prefix(bytes.size());
  }
  return shown;
}

std::string printable(const std::filesystem::path& path) { return printable_text(path.native()); }

}  // namespace hs
