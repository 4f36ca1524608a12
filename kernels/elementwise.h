// add, mul and scale, element by element; shapes and dtypes must be equal (nothing broadcasts).
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor add(const Tensor& a, const Tensor& b);  // a + b
Tensor mul(const Tensor& a, const Tensor& b);  // a * b
Tensor scale(const Tensor& x, double factor);  // x * factor, the factor rounded to x's dtype

constinit inline Kernel<void(const Tensor& a, const Tensor& b, Tensor& y)> add_forward{"add_forward"};
constinit inline Kernel<void(const Tensor& a, const Tensor& b, Tensor& y)> mul_forward{"mul_forward"};
constinit inline Kernel<void(const Tensor& x, double factor, Tensor& y)> scale_forward{"scale_forward"};

}  // namespace hs
