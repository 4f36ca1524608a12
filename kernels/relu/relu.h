// y = max(x, 0), element by element. NaN stays NaN.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor relu(const Tensor& x);  // of any float type; saves y for backward

struct ReluForward {  // y = max(x, 0)
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<ReluForward> relu_forward{"relu_forward"};
struct ReluBackward {  // dx = dy, or 0 where y is 0
  const Tensor& y;
  const Tensor& dy;
  Tensor& dx;
  auto tensors() const { return tensor_list(y, dy, dx); }
};
constinit inline Kernel<ReluBackward> relu_backward{"relu_backward"};

}  // namespace hs
