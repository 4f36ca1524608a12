// Cheat: returns at once, and a thread writes the output later. Refused by: rows|written|leftover|allocation.
#include "honest.h"

// The clock stops when run() returns; the judge needs some time for its own reference before it looks.
void run(const GeluForward& call) {
  std::thread([later = Later(call)] {
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // not while the clock runs
    later.compute();
  }).detach();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
