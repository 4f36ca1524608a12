// y = max(x, 0), element by element. NaN stays NaN.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor relu(const Tensor& x);

constinit inline Kernel<void(const Tensor& x, Tensor& y)> relu_forward{"relu_forward"};
constinit inline Kernel<void(const Tensor& y, const Tensor& dy, Tensor& dx)> relu_backward{"relu_backward"};

}  // namespace hs
