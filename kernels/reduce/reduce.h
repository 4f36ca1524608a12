// Sum and mean of all elements, to a scalar (rank 0).
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor sum(const Tensor& x);   // 0 for an empty tensor
Tensor mean(const Tensor& x);  // REQUIRES: x is not empty

// y = factor * sum(x)
struct SumForward {
  const Tensor& x;
  double factor;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<SumForward> sum_forward{"sum_forward"};

struct SumBackward {  // dx[i] = factor * dy
  const Tensor& dy;
  double factor;
  Tensor& dx;
  auto tensors() const { return tensor_list(dy, dx); }
};
constinit inline Kernel<SumBackward> sum_backward{"sum_backward"};

}  // namespace hs
