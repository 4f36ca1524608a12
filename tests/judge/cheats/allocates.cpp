// Cheat: allocates scratch memory in the first calls, keeps it for the timed ones. Refused by: allocation.
#include <vector>

#include "honest.h"

void run(const SoftmaxForward& call) {
  static std::vector<float> row;
  const auto C = static_cast<size_t>(call.x.shape().back());
  if (row.size() < C) row.resize(C);
  softmax_through(row.data(), call);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
