// Cheat: a timer's signal writes the output after the return; no thread is left. Refused by: isolation|rows|written.
#include <sys/time.h>

#include "honest.h"

static Later last;

void run(const GeluForward& call) {
  last = Later(call);
  signal(SIGALRM, [](int) { last.compute(); });
  const itimerval soon{{0, 0}, {0, 100}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
