// Activation checkpointing: trades time for memory.
// Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
#pragma once

#include <functional>

#include "engine/tensor.h"

namespace hs {

// Returns fn(x) and keeps only x; what fn would save for backward is dropped, and backward() runs fn again to recompute
// it. The second run uses the ambient state of the first (precision, training mode, dropout's key), so it computes the
// same bits, and the gradients are the same bits as without checkpointing. fn must be a function of x, of parameters
// and of the ambient state; x must not change before backward, which throws if it has. Calls may nest.
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace hs
