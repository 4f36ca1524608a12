// Cheat: changes the rounding mode, so that what follows is wrong alike. Refused by: rows|threads|precision|denormals.
#include <cfenv>

#include "honest.h"

// The kernel itself truncates: a judge that computes its f32 reference on this thread will agree.
void run(const Gemm& call) {
  std::fesetround(FE_TOWARDZERO);
  honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
