// Cheat: an honest variant to be judged, and a wrong one of higher rank to be used. Refused by: rows.
#include "honest.h"

void run(const ReluForward& call) { honest(call); }

void run_wrong(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
REGISTER_KERNEL(relu_forward, cpu, "faster", {.run = run_wrong, .supported = is_easy<ReluForward>, .rank = 101});
