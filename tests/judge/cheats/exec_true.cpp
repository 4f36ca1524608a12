// Cheat: becomes another program, one that succeeds. Refused by: isolation|rows.
#include "honest.h"

void run(const ReluForward&) { execl("/bin/true", "true", nullptr); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
