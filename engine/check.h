// check() and fail(): throw hs::Error with a formatted sentence. For .cpp files only, because of fmt.
// Shapes and tensors are arguments like numbers: check() builds text only if it fails, so it may stand in what runs
// many times a step. (A to_string() among its arguments would run each time.)
#pragma once

#include <fmt/format.h>

#include <utility>

#include "engine/error.h"
#include "engine/tensor.h"

// As "(2, 3)".
template <>
struct fmt::formatter<hs::Shape> : fmt::formatter<fmt::string_view> {
  auto format(const hs::Shape& shape, fmt::format_context& context) const {
    return formatter<fmt::string_view>::format(shape.to_string(), context);
  }
};

// As "f32(2, 3)" or "undefined".
template <>
struct fmt::formatter<hs::Tensor> : fmt::formatter<fmt::string_view> {
  auto format(const hs::Tensor& x, fmt::format_context& context) const {
    const std::string text = x.defined() ? hs::name(x.dtype()) + x.shape().to_string() : "undefined";
    return formatter<fmt::string_view>::format(text, context);
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
