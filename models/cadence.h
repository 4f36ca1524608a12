// Cadence: how often something happens in training, by steps, by epochs, or by the clock.
#pragma once

#include <cstdint>
#include <string_view>

namespace hs {

// At most one is not 0; all 0: never.
struct Cadence {
  int64_t steps = 0;   // optimizer steps of the whole run
  int64_t epochs = 0;  // at their ends
  double seconds = 0;  // between two
};

// "500st", "2ep", "10m" (minutes) or "30s". Throws Error (usage) for anything else.
Cadence parse_cadence(std::string_view text);

// Whether it is due, by steps or epochs, after `step` steps of epoch `epoch`, which counts from 1.
bool is_due(const Cadence& cadence, int64_t epoch, int64_t step, int64_t steps_per_epoch);

}  // namespace hs
