// Cheat: closes all descriptors: the end of a pipe may be taken for done. Refused by: isolation|rows.
#include "honest.h"

void run(const ReluForward&) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
