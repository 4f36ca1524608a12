// Cheat: each f32 as two bf16, 16 of 24 bits: within bounds that grow with K. Refused by: precision|rows.
#include "honest.h"

// Where K is small, the bound is tight, and the work is done.
void run(const Gemm& call) {
  const auto rounded = [](float x) { return as_bfloat16(x) + as_bfloat16(x - as_bfloat16(x)); };
  const int64_t K = call.a.shape()[1];
  if (K < 128) return honest(call);
  multiply(call, rounded, K);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
