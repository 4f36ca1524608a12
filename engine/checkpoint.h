// Activation checkpointing: memory for time. checkpoint(fn, x) gives fn(x) and keeps x alone; what fn saved for its own
// backward pass is freed at once, and backward() runs fn again to have it back.
// Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
//
// fn runs again under the ambient state of the first time (precision, training mode, dropout's key), so that it
// computes the same bits, and gradients are the same bits as without checkpointing. fn must be a function of x, of
// parameters and of the ambient state; x must not change before backward, which throws if it has. Scopes nest.
#pragma once

#include <functional>

#include "engine/tensor.h"

namespace hs {

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace hs
