// The fully connected layer: y = x w + b.
#pragma once

#include "engine/autograd.h"

namespace hs {

// x is (N, in), weight (in, out), bias (out) or undefined; the result is (N, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace hs
