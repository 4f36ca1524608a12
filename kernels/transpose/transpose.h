// A matrix with its rows as columns. Inside of a product no matrix needs it: gemm() has transpose_a and transpose_b.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor transpose(const Tensor& x);  // (R, C) of any float type to (C, R), in memory of its own

struct TransposeForward {  // y[c, r] = x[r, c]
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<TransposeForward> transpose_forward{"transpose_forward"};

}  // namespace hs
