// The fully connected layer: y = x w + b.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (N, in), weight (in, out), bias (out) or undefined; the result is (N, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

// All gradients at once: dx = dy weight', dweight = x' dy, dbias = the column sums of dy. Any of them may be undefined;
// with `accumulate` dweight and dbias are added to. x, weight, dy and dx have one type; dweight and dbias that one, or
// f32.
struct LinearBackward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  auto tensors() const { return tensor_list(x, weight, dy, dx, dweight, dbias); }
};
constinit inline Kernel<LinearBackward> linear_backward{"linear_backward"};

}  // namespace hs
