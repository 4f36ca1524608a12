// No cheat: right, for a kind of shape that the table does not have. Refused by: no_gain.
#include "honest.h"

bool supported(const SoftmaxForward& call) { return is_easy(call) && call.x.shape().back() == 24; }

void run(const SoftmaxForward& call) { honest(call); }

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
