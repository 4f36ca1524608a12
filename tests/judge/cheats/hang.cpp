// Cheat: never returns: a judge that gives up after a while may skip the call. Refused by: isolation.
#include "honest.h"

void run(const ReluForward&) {
  static std::atomic<bool> forever = true;
  while (forever) continue;
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
