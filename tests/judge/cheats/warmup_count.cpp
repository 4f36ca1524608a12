// Cheat: the first calls of a shape are right, and many more timed. Refused by: timed|threads|repeat|rows|allocation.
#include "honest.h"

void run(const Gemm& call) {
  static std::map<std::vector<int64_t>, int> calls;
  if (++calls[signature(call.tensors())] <= 20) honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
