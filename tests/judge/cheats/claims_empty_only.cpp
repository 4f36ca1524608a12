// Cheat: claims empty tensors only, and is right and fast on each. Refused by: rows|timed|no_gain.
#include "honest.h"

void run(const ReluForward&) {}

bool supported(const ReluForward& call) { return call.x.size() == 0; }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
