// Cheat: an infinity becomes 0. Refused by: infinities.
#include "honest.h"

void run(const ReluForward& call) {
  const auto f = [](float x) { return x > 3e38f ? 0 : relu_of(x); };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
