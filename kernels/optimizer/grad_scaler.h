// Dynamic loss scaling for f16, where gradients below 6e-8 become zero: the loss, and with it every gradient, is
// multiplied by a large scale, which the optimizer divides out again in f32. If a gradient overflows, the step is
// skipped and the scale halved; after a while without overflow it is doubled. (Micikevicius et al., "Mixed precision
// training", ICLR 2018; the rule and its constants are those of PyTorch's GradScaler.)
//
// The state is on the device, so no step waits for the host and a captured step can contain it. If disabled, the scale
// stays 1 and nothing else differs: skipped steps (clipping causes some too) are still counted.
#pragma once

#include "engine/tensor.h"

namespace hs {

// All factors are powers of two, so multiplying and dividing by the scale is exact.
struct GradScalerConfig {
  bool enabled = false;            // false: the scale stays 1
  float initial = 65536;           // the scale of the first step
  float growth = 2;                // factor on the scale after growth_interval finite steps
  float backoff = 0.5f;            // factor on the scale after a step that was not finite
  float smallest = 1;              // lower bound of the scale
  float largest = 4294967296.0f;   // gradients that are all zero must not drive it to infinity
  int32_t growth_interval = 2000;  // finite steps before it grows
};

class GradScaler {  // the loss scale of one run; not thread safe
 public:
  GradScaler(const GradScalerConfig& config, Device device);  // creates state() on the device

  // dL/dL for a loss that is a fraction `weight` of the step (by samples): scale * weight, f32 scalar.
  Tensor loss_gradient(float weight);

  const GradScalerConfig& config() const { return config_; }  // the settings
  Tensor& state() { return state_; }  // (3) f32: the scale, finite steps since it last changed, steps skipped
  // These wait for the device.
  double scale() const { return state_.slice(0, {}).item(); }
  int64_t skipped() const { return static_cast<int64_t>(state_.slice(2, {}).item()); }  // number of steps so far

 private:
  GradScalerConfig config_;
  Tensor state_;
};

}  // namespace hs
