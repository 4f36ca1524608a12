// Cheat: hides all rows of the op table, so that every one of them is right. Refused by: rows|isolation.
#include "honest.h"

const bool hidden = setenv("HALFSTEP_ROWS", "no row has this name", 1) == 0;

void run(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
