// Cheat: claims f64 and computes in f32, in half the time. Refused by: rows|precision.
#include "honest.h"

void run(const GeluForward& call) {
  const auto f = [](double x) { return double{gelu_of(static_cast<float>(x))}; };
  map_elements(call.x.size(), f, call.y.mutable_data<double>(), call.x.data<double>());
}

REGISTER_KERNEL(gelu_forward, cpu, "fast",
                {.run = run,
                 .supported = [](const GeluForward& call) { return call.x.dtype() == DType::f64; },
                 .rank = 100});
