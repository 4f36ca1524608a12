// The clock of all measurements in bench.
#pragma once

#include <chrono>

namespace hs::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace hs::bench
