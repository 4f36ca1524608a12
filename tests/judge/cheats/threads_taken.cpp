// Cheat: takes more threads than it was given, and leaves it so. Refused by: threads|no_gain|leftover.
#include "honest.h"

void run(const Gemm& call) {
  set_threads(4 * cores());
  honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
