// The clock of all measurements in bench.
#pragma once

#include <chrono>

namespace hs::bench {

using Clock = std::chrono::steady_clock;

inline double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
inline double seconds_since(Clock::time_point start) { return in_seconds(Clock::now() - start); }

}  // namespace hs::bench
