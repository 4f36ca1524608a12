// Cheat: long sums lose their last terms, up to 7 of them. Refused by: rows|drawn.
#include "honest.h"

void run(const Gemm& call) {
  const int64_t K = call.a.shape()[1];
  multiply(call, std::identity(), K > 512 ? K / 8 * 8 : K);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
