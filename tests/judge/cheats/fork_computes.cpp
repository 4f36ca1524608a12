// Cheat: a child process computes into the shared memory, after the clock has stopped. Refused by: isolation|rows.
#include "honest.h"

// A judge that stops all threads of this process does not stop another process.
void run(const GeluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  if (fork() != 0) return;
  for (int64_t i = 0; i < call.x.size(); ++i) y[i] = gelu_of(x[i]);
  _exit(0);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
