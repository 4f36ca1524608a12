// y = max(a + b, 0), element by element, as a residual block ends. NaN stays NaN.
#pragma once

#include "engine/autograd.h"
#include "kernels/elementwise/elementwise.h"

namespace hs {

// relu(add(a, b)), in one pass if ambient().fuse. Shapes and dtypes must be equal.
Tensor add_relu(const Tensor& a, const Tensor& b);

constinit inline Kernel<BinaryForward> add_relu_forward{"add_relu_forward"};

}  // namespace hs
