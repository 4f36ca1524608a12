// The beginning of an optimizer's step, the same code on both devices: decides whether the step is taken and at which
// rate, and updates the loss scale.
#pragma once

#include <cmath>
#include <limits>

#include "engine/host_device.h"
#include "engine/slots.h"

namespace hs {

// A step's update of the state (engine/grad_scaler.h), on either device.
HS_HOST_DEVICE inline void update_scale(const GradScalerConfig& config, bool finite, float* state) {
  if (!finite) state[2] += 1;
  if (!config.enabled) return;
  if (!finite) {
    state[0] = state[0] * config.backoff < config.smallest ? config.smallest : state[0] * config.backoff;
    state[1] = 0;
    return;
  }
  state[1] += 1;
  if (state[1] < static_cast<float>(config.growth_interval)) return;
  state[0] = state[0] * config.growth > config.largest ? config.largest : state[0] * config.growth;
  state[1] = 0;
}

// The beginning of a step, on either device; see Optimizer::step. `measured` (from measure_gradients) may be nullptr.
HS_HOST_DEVICE inline void begin_step_on(const StepRule& rule, const float* measured, float* scaler, int32_t* step,
                                         float* rates) {
  const bool finite =
      measured == nullptr || (measured[1] == 0 && (rule.clip <= 0 || measured[0] <= std::numeric_limits<float>::max()));
  rates[rate_skip] = finite ? 0 : 1;
  if (finite) {
    rates[rate_learning] = rates[rate_base_learning] * schedule_factor(rule.schedule, *step);
    const double t = ++*step;
    rates[rate_correction1] = static_cast<float>(1 / (1 - pow(static_cast<double>(rule.beta1), t)));
    rates[rate_correction2] = static_cast<float>(1 / (1 - pow(static_cast<double>(rule.beta2), t)));
    rates[rate_gradient] = 1 / scaler[0];  // exact: the scale is a power of two
    if (rule.clip > 0) {
      const float norm = sqrtf(measured[0]);
      if (norm > rule.clip) rates[rate_gradient] *= rule.clip / norm;
    }
  }
  update_scale(rule.scaler, finite, scaler);
}

}  // namespace hs
