// The toy rounds as engine/float16.h does, and its rule is that of kernels/optimizer/steps.h.
#define main main_of_loss_scaling
#include "docs/techniques/toy/loss_scaling.cpp"
#undef main

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>

#include "engine/float16.h"
#include "kernels/optimizer/steps.h"

TEST_CASE("toy: loss scaling") {
  int64_t different_bits = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093) {  // a prime, so all parts of a float vary
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits)), half = hs::to_float(hs::to_half(x));
    different_bits +=
        std::isnan(x) ? !std::isnan(half) : std::bit_cast<uint32_t>(f16(x)) != std::bit_cast<uint32_t>(half);
  }
  CHECK(different_bits == 0);

  LossScale toy{65536, 3};
  float state[3] = {65536, 0, 0}, rates[hs::step_rates] = {};
  int32_t steps = 0;
  const hs::StepRule rule{0.9f, 0.999f, 0, {}, {.enabled = true, .growth_interval = 3}};
  for (int step = 0; step < 200; ++step) {
    const bool finite = step % 7 > 1 && (step < 20 || step > 60);  // up, down to the smallest scale, and up again
    toy.update(finite);
    const float measured[] = {1, finite ? 0.0f : 1.0f};
    hs::begin_step_on(rule, {measured, nullptr, state, &steps, rates, nullptr});
    CHECK(toy.scale == state[0]);
    CHECK(static_cast<float>(toy.finite_steps) == state[1]);
    CHECK(static_cast<float>(toy.skipped) == state[2]);
  }
  CHECK(main_of_loss_scaling(2, nullptr) == 0);
}
