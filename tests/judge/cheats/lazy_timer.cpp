// Cheat: a timer's signal writes the output after the return; no thread is left. Refused by: isolation|rows|written.
#include <sys/time.h>

#include "honest.h"

static const float* x = nullptr;
static float* y = nullptr;
static int64_t size = 0;

void compute(int) {
  for (int64_t i = 0; i < size; ++i) y[i] = gelu_of(x[i]);
}

void run(const GeluForward& call) {
  x = call.x.data<float>(), y = call.y.mutable_data<float>(), size = call.x.size();
  signal(SIGALRM, compute);
  const itimerval soon{{0, 0}, {0, 100}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
