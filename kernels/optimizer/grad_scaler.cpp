#include "kernels/optimizer/grad_scaler.h"

#include <vector>

#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {

GradScaler::GradScaler(const GradScalerConfig& config, Device device) : config_(config) {
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  state_ = Tensor::from(std::vector<float>{config.enabled ? config.initial : 1, 0, 0}, {3}).to(device);
}

Tensor GradScaler::loss_gradient(float weight) {
  Tensor scale = state_.slice(0, {});
  if (weight == 1) return scale;
  const MemoryPurposeScope purpose(MemoryPurpose::gradients);
  Tensor share = scale.empty_like();
  scale_loss({scale, weight, share});
  return share;
}

}  // namespace hs
