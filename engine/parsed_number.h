// Reads numbers that people and files have written.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace hs {

// The number that the whole text is. Whatever the locale, and without from_chars()'s leave for more: " 5", "0x10" and
// "+5" are none.
template <class Number>
std::optional<Number> parsed_number(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace hs
