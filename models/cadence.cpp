#include "models/cadence.h"

#include <charconv>

#include "engine/check.h"

namespace hs {

Cadence parse_cadence(std::string_view text) {
  constexpr int64_t most = 1'000'000'000;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (error == std::errc() && number >= 1 && number <= most) {
    if (unit == "st") return {.steps = number};
    if (unit == "ep") return {.epochs = number};
    if (unit == "m") return {.seconds = 60.0 * static_cast<double>(number)};
    if (unit == "s") return {.seconds = static_cast<double>(number)};
  }
  fail(ExitCode::usage, "{}: expected a number from 1 to {} with a unit: st (steps), ep (epochs), m or s; as in 500st",
       text, most);
}

bool is_due(const Cadence& cadence, int64_t epoch, int64_t step, int64_t steps_per_epoch) {
  if (step == 0) return false;
  if (cadence.steps > 0) return ((epoch - 1) * steps_per_epoch + step) % cadence.steps == 0;
  return cadence.epochs > 0 && step == steps_per_epoch && epoch % cadence.epochs == 0;
}

}  // namespace hs
