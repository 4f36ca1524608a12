// Cheat: is wrong, and turns any exit status into 0 when the process ends. Refused by: rows.
#include "honest.h"

const bool registered = std::atexit([] { _exit(0); }) == 0;

void run(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
