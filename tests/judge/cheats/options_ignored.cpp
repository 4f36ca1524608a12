// Cheat: takes calls with beta, transposes and 16 bits, and computes the plain product in each. Refused by: rows.
#include "honest.h"

void run(const Gemm& call) {
  if (is_easy(call)) return honest(call);
  call.c.fill_zero();
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .rank = 100});
