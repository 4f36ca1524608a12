// Cheat: kills the judge, so that there is no bad verdict. Refused by: isolation|rows.
#include "honest.h"

void run(const ReluForward& call) {
  kill(getppid(), SIGKILL);
  call.y.fill_zero();
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
