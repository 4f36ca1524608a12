// The formulas of LARS and LAMB (kernels/optimizer/optimizer.h), the same on both devices. The rate differs from one
// parameter tensor to the next, so a tensor is two passes: measure() gives, beside each parameter w, the number whose
// norm w's is compared with; ratio() makes a factor on the rate from the two norms; then each parameter is updated.
#pragma once

#include "kernels/optimizer/steps.h"

namespace hs {

struct LarsUpdate {
  LarsRule rule;
  float learning_rate = 0, factor = 0;
  HS_HOST_DEVICE void begin(const float* rates) { learning_rate = rates[rate_learning], factor = rates[rate_gradient]; }
  HS_HOST_DEVICE float measure(float, float g, float, float&) const { return g * factor; }
  HS_HOST_DEVICE float ratio(float decay, float weight, float gradient) const {
    return rule.trust * weight / (gradient + decay * weight);
  }
  HS_HOST_DEVICE void operator()(float decay, float ratio, const float& g, float& w, float& v) const {
    v = rule.momentum * v + learning_rate * ratio * (g * factor + decay * w);
    w -= v;
  }
};

struct LambUpdate {
  LambRule rule;
  float learning_rate = 0, factor = 0, correction1 = 0, correction2 = 0;
  HS_HOST_DEVICE void begin(const float* rates) {
    learning_rate = rates[rate_learning], factor = rates[rate_gradient];
    correction1 = rates[rate_correction1], correction2 = rates[rate_correction2];
  }
  HS_HOST_DEVICE float direction(float decay, float w, float m, float v) const {
    return m * correction1 / (sqrtf(v * correction2) + rule.epsilon) + decay * w;
  }
  HS_HOST_DEVICE float measure(float decay, float g, float w, float& m, float& v) const {
    g = g * factor;
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    return direction(decay, w, m, v);
  }
  HS_HOST_DEVICE float ratio(float, float weight, float length) const { return weight / length; }
  HS_HOST_DEVICE void operator()(float decay, float ratio, const float&, float& w, float m, float v) const {
    w -= learning_rate * ratio * direction(decay, w, m, v);
  }
};

// The factor on the rate of a tensor: 1 where a norm is zero, and for one that is not adapted.
template <class Update>
HS_HOST_DEVICE float rate_of_part(const Update& update, bool adapts, float decay, float weight, float other) {
  return adapts && weight > 0 && other > 0 ? update.ratio(decay, weight, other) : 1;
}

}  // namespace hs
