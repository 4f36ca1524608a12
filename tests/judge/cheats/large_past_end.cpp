// Cheat: writes 64 bytes past the end of large tensors. Refused by: guard.
#include "honest.h"

void run(const ReluForward& call) {
  honest(call);
  if (call.x.size() > 50000) std::fill_n(call.y.mutable_data<float>() + call.y.size(), 16, 0.0f);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
