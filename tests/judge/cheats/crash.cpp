// Cheat: crashes: without an output there is none that is wrong. Refused by: isolation.
#include "honest.h"

void run(const ReluForward&) { __builtin_trap(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
