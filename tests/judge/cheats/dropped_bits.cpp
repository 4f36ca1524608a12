// Cheat: eight bits of each mantissa are dropped, which no plot shows. Refused by: rows.
#include "honest.h"

void run(const ReluForward& call) {
  const auto f = [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(relu_of(x)) & 0xffffff00u); };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
