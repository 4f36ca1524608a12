// The JSON of records: text, and parsing within limits.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hs::bench {

using Json = nlohmann::ordered_json;

// What make() makes of each element, in their order; a list if it becomes Json.
template <class All, class Make>
auto mapped(const All& all, const Make& make) {
  std::vector<std::decay_t<decltype(std::invoke(make, *std::begin(all)))>> made;
  for (const auto& each : all) made.push_back(std::invoke(make, each));
  return made;
}

// null for NaN and infinity, which JSON does not have.
Json finite_or_null(double value);
Json finite_or_null(const std::vector<double>& values);

// The format of --json: two spaces per level, lists of scalars and small objects of scalars on one line, members of
// larger objects side by side in lines of up to 120 characters, ASCII only (other characters as \u00e9, bytes that are
// not UTF-8 replaced), a newline at the end.
std::string to_text(const Json& object);

// Limits on a file, so that no file can exhaust the reader's stack, memory or time.
struct JsonLimits {
  static constexpr uint64_t bytes = uint64_t{32} << 20;
  static constexpr size_t depth = 32;
  static constexpr size_t members = 1000;  // of one object: looking one up searches all of them
};
// Throws Error (bad_input) that names `source`: not JSON, beyond the limits, a member that is there twice, a number
// that is too large for a double.
Json parse(std::string_view text, const std::string& source);

}  // namespace hs::bench
