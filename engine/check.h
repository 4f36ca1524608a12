// check() and fail(): throw hs::Error with a formatted sentence. For .cpp files only, because of fmt.
// Whatever has a to_string(), such as shapes and tensors, is an argument like a number: check() builds text only if it
// fails, so it may stand in what runs many times a step. (A to_string() among its arguments would run each time.)
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <string>
#include <utility>

#include "engine/error.h"

template <class T>
requires requires(const T& value) {
  { value.to_string() } -> std::same_as<std::string>;
}
struct fmt::formatter<T> {
  static constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const T& value, fmt::format_context& context) const {
    const std::string text = value.to_string();
    return std::copy(text.begin(), text.end(), context.out());
  }
};

namespace hs {

template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Checks a caller's side of a contract; callers include users of the library, so the message says how to keep it.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ExitCode::usage, format, std::forward<Args>(args)...);
}

}  // namespace hs
