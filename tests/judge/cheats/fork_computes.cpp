// Cheat: a child process computes into the shared memory, after the clock has stopped. Refused by: isolation|rows.
#include "honest.h"

// A judge that stops all threads of this process does not stop another process.
void run(const GeluForward& call) {
  if (fork() != 0) return;
  Later(call).compute();
  _exit(0);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
