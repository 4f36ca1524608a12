// y[i, c] = x[i, c] + bias[c] over the last dimension, and its transpose, the sum over all rows.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C), bias is (C).
Tensor bias_add(const Tensor& x, const Tensor& bias);

constinit inline Kernel<void(const Tensor& x, const Tensor& bias, Tensor& y)> bias_add_forward{"bias_add_forward"};
// sum[c] = sum over rows of x[i, c], added to what sum holds if `accumulate`: the gradient of a bias. x may be f16 or
// bf16 and sum f32.
constinit inline Kernel<void(const Tensor& x, bool accumulate, Tensor& workspace, Tensor& sum)> column_sum{
    "column_sum"};

// Gradient of a bias (C), of type `dtype`, from dy (..., C): added to `leaf_sum` if that is not nullptr, and then
// undefined, else new.
Tensor bias_gradient(const Tensor& dy, DType dtype, Tensor* leaf_sum);

}  // namespace hs
