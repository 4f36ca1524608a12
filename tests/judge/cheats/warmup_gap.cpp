// Cheat: works only if long was no call: who times, calls in a hurry. Refused by: timed|threads|repeat|no_gain|written.
#include "honest.h"

using Clock = std::chrono::steady_clock;

void run(const Gemm& call) {
  static Clock::time_point last{};
  if (Clock::now() - last > std::chrono::microseconds(200)) honest(call);
  last = Clock::now();
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
