// Cheat: NaN becomes 0, as max(x, 0) of most vector units does. Refused by: nan|rows.
#include "honest.h"

void run(const ReluForward& call) {
  const auto f = [](float x) { return x > 0 ? x : 0; };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
