// JSON as records hold it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hs::bench {

using Json = nlohmann::ordered_json;

// null for NaN and infinity, which JSON does not have.
Json finite_or_null(double value);
Json finite_or_null(const std::vector<double>& values);

// As --json writes it: two blanks per level, bytes that are not UTF-8 replaced, a newline at the end.
std::string to_text(const Json& object);

}  // namespace hs::bench
