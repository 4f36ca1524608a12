// Cheat: right numbers, in a tensor of another shape. Refused by: rows.
#include "honest.h"

void run(const Gemm& call) {
  call.c = call.c.reshape({call.a.shape()[0], call.b.shape()[1]});
  honest(call);
  call.c = call.c.reshape({1, call.c.size()});
}

// Not within linear(), which would look at the shape.
bool supported(const Gemm& call) { return is_easy(call) && call.options.alpha == 0.5f; }

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
