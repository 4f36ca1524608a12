// Cheat: each call writes the output of the call before, late but before the end. Refused by: rows|written.
#include "honest.h"

// For judges that make a hundred calls and then look at all outputs, or at the last: with a count of 100, the hundredth
// call does the work of one.
void run(const GeluForward& call) {
  static Later last;
  static int calls = 0;
  if (++calls % 100 == 0) last.compute();
  last = Later(call);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
