// What the optimizers keep decays to zero and not to a subnormal, which x86-64 computes with a hundred times slower.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/tensor.h"
#include "kernels/optimizer/steps.h"

namespace hs::test {
namespace {

constexpr float smallest = std::numeric_limits<float>::min();

Tensor filled(float value) { return Tensor::from(std::vector<float>(100, value), {100}); }

int64_t subnormals(const Tensor& x) {
  int64_t count = 0;
  for (const float value : x.to_vector<float>()) count += std::fpclassify(value) == FP_SUBNORMAL;
  return count;
}

}  // namespace

TEST_CASE("the mean, square and velocity of a parameter without gradient become zero") {
  const Tensor gradient = filled(0);
  const AdamRule adam = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0, .decoupled = false};
  const SgdRule sgd = {.momentum = 0.9f, .weight_decay = 0};
  Tensor rates = Tensor::from(std::vector<float>(step_rates, 1.0f), {step_rates});
  rates.mutable_data<float>()[rate_skip] = 0;
  Tensor mean = filled(smallest), square = filled(smallest), velocity = filled(smallest), value = filled(1);
  for (int step = 0; step < 3; ++step) {
    adam_step({.gradient = gradient, .rule = adam, .rates = rates, .mean = mean, .square = square, .value = value});
    sgd_step({.gradient = gradient, .rule = sgd, .rates = rates, .velocity = velocity, .value = value});
  }
#if defined(__x86_64__)
  CHECK(subnormals(mean) == 0);
  CHECK(subnormals(square) == 0);
  CHECK(subnormals(velocity) == 0);
#endif
  volatile float half = smallest;
  half = half / 2;
  CHECK(half > 0);  // only the optimizers treat subnormals as zero
}

}  // namespace hs::test
