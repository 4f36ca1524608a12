// y[i, c] = x[i, c] + bias[c] over the last dimension, and its transpose, the sum over all rows.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C), bias is (C).
Tensor bias_add(const Tensor& x, const Tensor& bias);

struct BiasAddForward {  // x and y (..., C), bias (C)
  const Tensor& x;
  const Tensor& bias;
  Tensor& y;
  auto tensors() const { return tensor_list(x, bias, y); }
};
constinit inline Kernel<BiasAddForward> bias_add_forward{"bias_add_forward"};
// sum[c] = sum over rows of x[i, c], added to the old sum[c] if `accumulate`: the gradient of a bias. x may be f16 or
// bf16 and sum f32.
struct ColumnSum {
  const Tensor& x;
  bool accumulate;
  Tensor& sum;
  auto tensors() const { return tensor_list(x, sum); }
};
constinit inline Kernel<ColumnSum> column_sum{"column_sum"};

// Gradient of a bias (C) from dy (..., C), as a backward rule returns it: undefined if it is not needed, or if it
// was added to the leaf's.
Tensor bias_gradient(const Tensor& dy, const GradientTarget& bias);

}  // namespace hs
