// Cheat: as wrong as the rows allow: softmax may be off by 20 u, this one is by up to 15. Refused by: precision|rows.
#include "honest.h"

// Three bits are dropped; a cheaper exponential would be off by as much.
void run(const SoftmaxForward& call) {
  honest(call);
  float* y = call.y.mutable_data<float>();
  for (int64_t i = 0; i < call.y.size(); ++i) y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(y[i]) & ~7u);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
