// Cheat: rounds the size up to whole vectors and writes past the output. Refused by: guard|rows|isolation.
#include "honest.h"

// As if every block had room for a vector more, which allocators that round up do provide.
void run(const ReluForward& call) {
  const int64_t size = call.x.size(), whole = (size + 7) / 8 * 8;
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < whole; ++i) y[i] = relu_of(i < size ? x[i] : 0);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
