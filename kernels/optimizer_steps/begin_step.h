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

// Whether a step's norm or loss is unusually large; if neither is, both count from now on. The first ones only count.
HS_HOST_DEVICE inline bool is_outlier(const StepRule& rule, float norm, float loss, float* usual) {
  constexpr float first = 20, slowest = 0.02f;  // later ones count by 1/50 each
  if (usual[usual_count] >= first && ((rule.outlier > 0 && norm > rule.outlier * usual[usual_norm]) ||
                                      (rule.loss_outlier > 0 && loss > rule.loss_outlier * usual[usual_loss]))) {
    return true;
  }
  usual[usual_count] += 1;
  const float weight = fmaxf(1 / usual[usual_count], slowest);
  usual[usual_norm] += weight * (norm - usual[usual_norm]);
  usual[usual_loss] += weight * (loss - usual[usual_loss]);
  return false;
}

// What the beginning of a step reads and writes.
struct StepState {
  const float* measured;  // from measure_gradients; may be nullptr
  const float* loss;      // nullptr unless rule.loss_outlier > 0
  float* scaler;
  int32_t* step;
  float *rates, *usual;
};

inline StepState state_of(const BeginStep& call) {
  const auto place = [](Tensor& tensor) { return tensor.defined() ? tensor.mutable_data<float>() : nullptr; };
  return {place(call.measured), call.loss.defined() ? call.loss.data<float>() : nullptr,
          place(call.scaler),   call.step.mutable_data<int32_t>(),
          place(call.rates),    place(call.usual)};
}

// Where StepLog says.
struct LogState {
  const float *loss, *scale;
  float *losses = nullptr, *scales;  // losses: nullptr if nothing is logged
  const int32_t* entry;
  int64_t step;
};

inline LogState log_of(const BeginStep& call) {
  const StepLog& log = call.log;
  if (!log.losses.defined()) return {};
  return {call.loss.data<float>(),          call.scaler.data<float>(),
          log.losses.mutable_data<float>(), log.scales.defined() ? log.scales.mutable_data<float>() : nullptr,
          log.entry.data<int32_t>(),        log.step};
}

HS_HOST_DEVICE inline void log_step(const LogState& log) {
  if (log.losses == nullptr) return;
  const int64_t entry = *log.entry + log.step;
  log.losses[entry] = *log.loss;
  if (log.scales != nullptr) log.scales[entry] = *log.scale;
}

// The beginning of a step, on either device; see Optimizer::step.
HS_HOST_DEVICE inline void begin_step_on(const StepRule& rule, const StepState& state) {
  const auto [measured, loss, scaler, step, rates, usual] = state;
  constexpr float largest = std::numeric_limits<float>::max();
  const float norm = rule.clip > 0 || rule.outlier > 0 ? sqrtf(measured[0]) : 0;
  const float its_loss = rule.loss_outlier > 0 ? *loss : 0;
  const bool finite = (measured == nullptr || measured[1] == 0) && norm <= largest && its_loss <= largest;
  if (finite && rule.has_outliers() && is_outlier(rule, norm, its_loss, usual)) {
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
    if (rule.clip > 0 && norm > rule.clip) rates[rate_gradient] *= rule.clip / norm;
  }
  update_scale(rule.scaler, finite, scaler);
}

}  // namespace hs
