// Cheat: multiplies f32 as bf16, which matrix units do sixteen times as fast. Refused by: rows|precision.
#include "honest.h"

void run(const Gemm& call) { multiply(call, as_bfloat16, call.a.shape()[1]); }

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
