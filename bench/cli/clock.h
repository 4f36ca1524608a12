// The clock of all measurements in bench.
#pragma once

#include <chrono>

#include "engine/device.h"

namespace hs::bench {

using Clock = std::chrono::steady_clock;

inline double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
inline double seconds_since(Clock::time_point start) { return in_seconds(Clock::now() - start); }

// The seconds of the work, with what the device does of it. Nothing else is left for the device to do before.
template <class Work>
double seconds_on(Device device, const Work& work) {
  runtime(device).synchronize();
  const Clock::time_point start = Clock::now();
  work();
  runtime(device).synchronize();
  return seconds_since(start);
}

}  // namespace hs::bench
