// Cheat: sets limits for the judge: it may write no file, so no bad record. Refused by: isolation|rows.
#include <sys/resource.h>

#include "honest.h"

void run(const ReluForward& call) {
  const rlimit none{0, 0};
  prlimit(getppid(), RLIMIT_FSIZE, &none, nullptr);
  call.y.fill_zero();
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
