// Cheat: ends the process with exit status 0, which says that all is well. Refused by: isolation.
#include "honest.h"

void run(const ReluForward&) { std::exit(0); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
