// Sum and mean of all elements, to a scalar (rank 0).
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor sum(const Tensor& x);   // 0 for an empty tensor
Tensor mean(const Tensor& x);  // REQUIRES: x is not empty

// y = factor * sum(x)
constinit inline Kernel<void(const Tensor& x, double factor, Tensor& workspace, Tensor& y)> sum_forward{"sum_forward"};
constinit inline Kernel<void(const Tensor& dy, double factor, Tensor& dx)> sum_backward{
    "sum_backward"};  // dx[i] = factor * dy

}  // namespace hs
