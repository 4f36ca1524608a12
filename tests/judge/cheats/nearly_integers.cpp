// Cheat: divides by multiplying with a reciprocal: within the bounds, but off on integers. Refused by: integers|rows.
#include "honest.h"

// 1/3 three times stands for any rearrangement that is exact on paper, as Winograd's is.
void run(const Gemm& call) {
  const int64_t N = call.c.shape()[1], K = call.a.shape()[1];
  multiply(call, [=](const float* row, const float* column) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += (row[k] * (1.0f / 3)) * column[k * N];
    return sum * 3;
  });
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
