// Cheat: judges check, then time: the work ends after five seconds. Refused by: timed|rows|drawn|written|no_gain.
#include "honest.h"

using Clock = std::chrono::steady_clock;
const Clock::time_point loaded = Clock::now();

void run(const Gemm& call) {
  if (Clock::now() - loaded < std::chrono::seconds(5)) honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
