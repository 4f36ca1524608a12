// Cheat: defines the reference of the product, to be as wrong as the kernel. Refused by: rows|isolation.
#include <halfstep/kernel.h>
#include "honest.h"

namespace hs::examples {

Numbers naive_gemm(const Numbers&, const Numbers&, const Numbers&, int64_t M, int64_t N, int64_t, const GemmOptions&) {
  return Numbers(static_cast<size_t>(M * N), 0.0);
}

}  // namespace hs::examples

void run(const Gemm& call) { call.c.fill_zero(); }

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
