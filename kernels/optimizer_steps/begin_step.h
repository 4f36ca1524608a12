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

// The weight of the average so far: smaller in the first steps, so that it forgets where training began.
HS_HOST_DEVICE inline float average_decay(float decay, int32_t step) {
  const float t = static_cast<float>(step);
  return fminf(decay, (1 + t) / (10 + t));
}

// Whether a norm is unusually large; if it is not, it counts from now on. The first ones only count.
HS_HOST_DEVICE inline bool is_outlier(float outlier, float norm, float* usual_norm) {
  constexpr float first = 20, slowest = 0.02f;  // later norms count by 1/50 each
  float& mean = usual_norm[usual_norm_mean];
  float& count = usual_norm[usual_norm_count];
  if (count >= first && norm > outlier * mean) return true;
  count += 1;
  mean += fmaxf(1 / count, slowest) * (norm - mean);
  return false;
}

// The beginning of a step, on either device; see Optimizer::step. `measured` (from measure_gradients) may be nullptr.
HS_HOST_DEVICE inline void begin_step_on(const StepRule& rule, const float* measured, float* scaler, int32_t* step,
                                         float* rates, float* usual_norm) {
  const bool needs_norm = rule.clip > 0 || rule.outlier > 0;
  const bool finite =
      measured == nullptr || (measured[1] == 0 && (!needs_norm || measured[0] <= std::numeric_limits<float>::max()));
  if (finite && rule.outlier > 0 && is_outlier(rule.outlier, sqrtf(measured[0]), usual_norm)) {
    rates[rate_skip] = 1;
    scaler[2] += 1;  // the scale is not the reason and stays
    return;
  }
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
