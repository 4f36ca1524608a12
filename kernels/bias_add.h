// y[i, c] = x[i, c] + bias[c] over the last dimension, and its transpose, the sum over all rows.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C), bias is (C).
Tensor bias_add(const Tensor& x, const Tensor& bias);

constinit inline Kernel<void(const Tensor& x, const Tensor& bias, Tensor& y)> bias_add_forward{"bias_add_forward"};
// sum[c] = sum over rows of x[i, c]: the gradient of a bias.
constinit inline Kernel<void(const Tensor& x, Tensor& workspace, Tensor& sum)> column_sum{"column_sum"};

// Allocates and calls column_sum: x is (..., C), the result (C).
Tensor sum_columns(const Tensor& x);

}  // namespace hs
