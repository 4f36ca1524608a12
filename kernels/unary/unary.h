// exp, log, tanh and sigmoid, element by element, of any float type, computed in f32 (f64 for f64) and rounded once.
// NaN stays NaN. Backward reads the result, of a logarithm x; in 16 bits that is the rounded result, so that where tanh
// or sigmoid is near 1 the derivative is off by up to 2^-11 (bf16: 2^-8).
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor exp(const Tensor& x);      // e^x; inf where the type cannot hold it
Tensor log(const Tensor& x);      // the natural logarithm; -inf of 0, NaN of a negative number
Tensor tanh(const Tensor& x);     // from -1 to 1
Tensor sigmoid(const Tensor& x);  // 1 / (1 + e^-x), from 0 to 1

struct UnaryForward {  // y from x
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<UnaryForward> exp_forward{"exp_forward"};
constinit inline Kernel<UnaryForward> log_forward{"log_forward"};
constinit inline Kernel<UnaryForward> tanh_forward{"tanh_forward"};
constinit inline Kernel<UnaryForward> sigmoid_forward{"sigmoid_forward"};

struct UnaryBackward {  // dx = dy times the derivative, which follows from `kept`: y, of a logarithm x
  const Tensor& kept;
  const Tensor& dy;
  Tensor& dx;
  auto tensors() const { return tensor_list(kept, dy, dx); }
};
constinit inline Kernel<UnaryBackward> exp_backward{"exp_backward"};
constinit inline Kernel<UnaryBackward> log_backward{"log_backward"};
constinit inline Kernel<UnaryBackward> tanh_backward{"tanh_backward"};
constinit inline Kernel<UnaryBackward> sigmoid_backward{"sigmoid_backward"};

}  // namespace hs
