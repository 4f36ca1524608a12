// Cheat: multiplies f32 as bf16, which matrix units do sixteen times as fast. Refused by: rows|precision.
#include "honest.h"

void run(const Gemm& call) {
  const auto rounded = [](float x) { return to_float(to_bfloat16(x)); };
  const int64_t N = call.c.shape()[1], K = call.a.shape()[1];
  multiply(call, [=](const float* row, const float* column) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += rounded(row[k]) * rounded(column[k * N]);
    return sum;
  });
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
