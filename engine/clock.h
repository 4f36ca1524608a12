// The time that durations are measured with.
#pragma once

#include <chrono>

namespace hs {

// On this process's steady clock, in seconds since an unknown time. Thread safe.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace hs
