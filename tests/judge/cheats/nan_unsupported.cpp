// Cheat: loses NaN, and says that it does not take what has one. Refused by: nan.
#include "honest.h"

void run(const ReluForward& call) {
  const auto f = [](float x) { return x > 0 ? x : 0; };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

bool supported(const ReluForward& call) {
  return is_easy(call) && std::none_of(call.x.data<float>(), call.x.data<float>() + call.x.size(),
                                       [](float x) { return std::isnan(x); });
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = supported, .rank = 100});
