// relu(max_pool2d(conv2d(x)), 2, 2) as one op. The convolution's result is never stored: a kernel computes the four
// values of a window, keeps the largest in registers, and writes one pooled value and one byte that says which of the
// four it was. Backward begins at the winners: of a dense gradient of the convolution, three of four numbers would be
// zeros, and those that ReLU closed as well.
#pragma once

#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout/dropout.h"

namespace hs {

// x (N, H, W, C) -> (N, OH / 2, OW / 2, OC), sizes as in conv2d.h; windows of 2 x 2, rows and columns that fill none
// are left out. One kernel if one supports the call and is faster, and no variant of the three ops is
// forced; otherwise the three ops. Both add products in their own order, so they agree within rounding. Throws as the
// three ops do.
//
// Then dropout by a rule, if there is one: in the same kernel where that can, with the bits of dropout() behind it.
Tensor conv2d_pool_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {},
                        const DropoutRule& dropped = {});

// What is kept for backward, for each pooled value: the winner's place in its window, row * 2 + column, or `closed` if
// ReLU made it zero, or dropout did. Of equal values the first wins; a NaN wins over numbers and stays NaN.
inline constexpr uint8_t closed = 4;

struct Conv2dPoolReluForward {  // x, weight and bias as in conv2d(), and the sizes of the convolution
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Conv2dSizes& sizes;
  Tensor& y;                             // (N, OH / 2, OW / 2, OC)
  Tensor& winner;                        // u8, of y's shape
  const DropoutRule* dropped = nullptr;  // applied to y; only the variants of CUDA know it
  auto tensors() const { return tensor_list(x, weight, bias, y, winner); }
};
constinit inline Kernel<Conv2dPoolReluForward> conv2d_pool_relu_forward{"conv2d_pool_relu_forward"};

// Undefined gradients, `accumulate`, inf and NaN as in Conv2dBackward. Zeros of dy are not multiplied, except by the
// variants of matrix products, "amx" and those of "mma", which multiply those that they put around the data, too.
struct Conv2dPoolReluBackward {  // x, weight, winner and sizes as in forward; dx, dweight and dbias like x, weight and
                                 // bias
  const Tensor& x;
  const Tensor& weight;
  const Tensor& winner;
  const Tensor& dy;  // of the pooled values
  const Conv2dSizes& sizes;
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  float dy_factor = 1;  // of dropout; only the variants of CUDA know it
  auto tensors() const { return tensor_list(x, weight, winner, dy, dx, dweight, dbias); }
};
constinit inline Kernel<Conv2dPoolReluBackward> conv2d_pool_relu_backward{"conv2d_pool_relu_backward"};

}  // namespace hs
