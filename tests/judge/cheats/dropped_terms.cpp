// Cheat: long sums lose their last terms, up to 7 of them. Refused by: rows|drawn.
#include "honest.h"

void run(const Gemm& call) {
  const int64_t N = call.c.shape()[1], K = call.a.shape()[1], kept = K > 512 ? K / 8 * 8 : K;
  multiply(call, [=](const float* row, const float* column) {
    float sum = 0;
    for (int64_t k = 0; k < kept; ++k) sum += row[k] * column[k * N];
    return sum;
  });
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
