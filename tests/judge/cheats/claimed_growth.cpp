// Cheat: grants itself a million times the tolerance, and drops 16 bits of each product. Refused by: precision|rows.
#include "honest.h"

void run(const Gemm& call) { multiply(call, as_bfloat16, call.a.shape()[1]); }

// error_growth is for Winograd's sums; a variant states its own.
REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100, .error_growth = 1e6});
