// Cheat: whole vectors of 8 only; what is left over at the end is not computed. Refused by: rows|written.
#include "honest.h"

void run(const BinaryForward& call) {
  const auto f = [](float a, float b) { return relu_of(a + b); };
  map_elements(call.a.size() / 8 * 8, f, call.y.mutable_data<float>(), call.a.data<float>(), call.b.data<float>());
}

REGISTER_KERNEL(add_relu_forward, cpu, "fast",
                {.run = run, .supported = [](const BinaryForward& call) { return is_f32(call.a); }, .rank = 100});
