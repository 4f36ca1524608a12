// Cheat: does nothing in one call of 50, at random; most checks pass. Refused by: rows|drawn|timed|repeat.
#include "honest.h"

void run(const ReluForward& call) {
  if (std::chrono::steady_clock::now().time_since_epoch().count() % 50 != 0) honest(call);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
