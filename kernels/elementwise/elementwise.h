// add, sub, mul and scale, element by element; shapes must be equal (nothing broadcasts), and types, but for a sum's
// second operand. And bias_add.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"
#include "engine/slots.h"

namespace hs {

Tensor add(const Tensor& a, const Tensor& b);  // a + b, of a's type; b may have 16 bits where a is f32
Tensor sub(const Tensor& a, const Tensor& b);  // a - b
Tensor mul(const Tensor& a, const Tensor& b);  // a * b
// x * factor. The factor is rounded to f32 (not at all if x is f64), and the product to x's dtype: in 16 bits
// 0.1 is 0.1f and not the nearest f16.
Tensor scale(const Tensor& x, double factor);

constinit inline Kernel<BinaryForward> sub_forward{"sub_forward"};
constinit inline Kernel<BinaryForward> mul_forward{"mul_forward"};
struct ScaleForward {  // y = x * factor
  const Tensor& x;
  double factor;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<ScaleForward> scale_forward{"scale_forward"};

// y[i, c] = x[i, c] + bias[c] over the last dimension. x is (..., C), bias is (C), rounded to x's type.
Tensor bias_add(const Tensor& x, const Tensor& bias);

struct BiasAddForward {  // x and y (..., C), bias (C)
  const Tensor& x;
  const Tensor& bias;
  Tensor& y;
  auto tensors() const { return tensor_list(x, bias, y); }
};
constinit inline Kernel<BiasAddForward> bias_add_forward{"bias_add_forward"};

}  // namespace hs
