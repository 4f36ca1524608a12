// Cheat: tells the judge that it is done, on all descriptors, before it begins. Refused by: isolation|no_gain.
#include "honest.h"

void run(const Gemm& call) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) (void)!write(descriptor, "\1", 1);
  honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
