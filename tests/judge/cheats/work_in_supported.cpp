// Cheat: works in supported(), which may be called off the clock. Refused by: rows|written|no_gain.
#include "honest.h"

bool supported(const Gemm& call) {
  if (!is_easy(call)) return false;
  honest(call);
  return true;
}

void run(const Gemm&) {}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
