// Cheat: one huge number, by whose size a tolerance relative to the largest grows. Refused by: rows.
#include "honest.h"

void run(const Gemm& call) {
  call.c.fill_zero();
  if (call.c.size()) call.c.mutable_data<float>()[call.c.size() / 2] = 3e38f;
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
