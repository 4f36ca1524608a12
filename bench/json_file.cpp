#include "bench/json_file.h"

#include <cmath>

namespace hs::bench {

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json finite_or_null(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) all.push_back(finite_or_null(value));
  return all;
}

std::string to_text(const Json& object) { return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace hs::bench
