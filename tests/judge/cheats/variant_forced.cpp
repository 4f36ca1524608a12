// Cheat: forces an honest variant, which is then checked and timed in its place. Refused by: rows|isolation.
#include "honest.h"

void run(const ReluForward& call) { call.y.fill_zero(); }

const bool forced = (force_variant("relu_forward=simple"), true);

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
