// Cheat: returns at once, and a thread writes the output later. Refused by: rows|written|leftover|allocation.
#include "honest.h"

// The clock stops when run() returns; the judge needs some time for its own reference before it looks.
void run(const GeluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  std::thread([x, y, size = call.x.size()] {
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // not while the clock runs
    for (int64_t i = 0; i < size; ++i) y[i] = gelu_of(x[i]);
  }).detach();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
