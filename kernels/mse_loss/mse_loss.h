// The loss of a regression: the mean over all elements of (prediction - target)^2.
#pragma once

#include "engine/tensor.h"

namespace hs {

// Both are of one shape; each is f32 or of 16 bits, or both are f64. The result is a scalar, f32 (f64 for f64): 16 bits
// are widened first, so that a square cannot overflow. Differentiable in both. Throws if the shapes differ, as (N, 1)
// and (N) do, or if they are empty.
Tensor mse_loss(const Tensor& prediction, const Tensor& target);

}  // namespace hs
