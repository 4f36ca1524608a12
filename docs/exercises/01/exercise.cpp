// The starter: right for small x, and without a way back. Change it until tests/exercise 01 is content.
#include "docs/exercises/01/exercise.h"

#include <cmath>

namespace hs {

Tensor softplus(const Tensor& x) {
  Tensor y = x.empty_like();
  softplus_forward({x, y});
  return y;
}

namespace {

void forward(const SoftplusForward& call) {
  const auto f = [](float x) { return std::log(1 + std::exp(x)); };
  map_elements(call.x.size(), f, call.y.mutable_data<float>(), call.x.data<float>());
}

REGISTER_KERNEL(softplus_forward, cpu, "mine", {.run = forward});

}  // namespace
}  // namespace hs
