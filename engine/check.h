// check() and fail(): throw hs::Error with a formatted sentence. For .cpp files only, because of fmt.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "engine/error.h"

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
