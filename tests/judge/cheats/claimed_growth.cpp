// Cheat: grants itself a million times the tolerance, and drops 16 bits of each product. Refused by: precision|rows.
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

// error_growth is for Winograd's sums; a variant states its own.
REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100, .error_growth = 1e6});
