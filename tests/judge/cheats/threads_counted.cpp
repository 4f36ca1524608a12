// Cheat: one partial sum for each thread: other numbers of threads give other bits. Refused by: threads.
#include "honest.h"

void run(const Gemm& call) {
  const int64_t N = call.c.shape()[1], K = call.a.shape()[1], parts = threads();
  multiply(call, [=](const float* row, const float* column) {
    float total = 0;
    for (int64_t part = 0; part < parts; ++part) {
      float sum = 0;
      for (int64_t k = part * K / parts; k < (part + 1) * K / parts; ++k) sum += row[k] * column[k * N];
      total += sum;
    }
    return total;
  });
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
