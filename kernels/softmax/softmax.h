// y[i, c] = exp(x[i, c]) / sum over the row's k of exp(x[i, k]), over the last dimension; the row's maximum is
// subtracted first, so that nothing overflows. Backward: dx = y * (dy - sum over the row of y * dy). For a loss on
// logits, kernels/softmax_cross_entropy is cheaper and more exact.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C) with C > 0, of any float type; the result has its shape and type. Backward keeps x and recomputes y,
// which is rounded in 16 bits. Throws Error: usage if x has no dimension or C is 0.
Tensor softmax(const Tensor& x);

struct SoftmaxForward {  // x (..., C), y likewise
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<SoftmaxForward> softmax_forward{"softmax_forward"};

struct SoftmaxBackward {  // dx (..., C) from x and dy
  const Tensor& x;
  const Tensor& dy;
  Tensor& dx;
  auto tensors() const { return tensor_list(x, dy, dx); }
};
constinit inline Kernel<SoftmaxBackward> softmax_backward{"softmax_backward"};

}  // namespace hs
