// Cheat: flushes subnormals to zero, in whatever this thread computes from now on. Refused by: denormals|isolation.
#include "honest.h"

void run(const ReluForward& call) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | 0x40);  // operands too
#endif
  honest(call);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
