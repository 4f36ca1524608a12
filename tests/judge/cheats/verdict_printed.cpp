// Cheat: prints a verdict and ends the process before it is judged. Refused by: isolation.
#include "honest.h"

const bool judged = [] {
  std::puts("right and 99.00 times as fast as simple");
  std::fflush(stdout);
  _exit(0);
  return true;
}();

void run(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
