// 2-D convolution (cross-correlation, as in every framework) on NHWC images.
//   y[n, oh, ow, oc] = bias[oc] + sum over kh, kw, c of x[n, oh*stride + kh - padding, ow*stride + kw - padding, c]
//                                                      * weight[(kh*KW + kw)*C + c, oc]
// The weight is a matrix (KH*KW*C, OC), so the convolution is a GEMM whose result is NHWC without a transpose.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// Options of conv2d().
struct Conv2dOptions {
  int64_t kernel_h = 3, kernel_w = 3;  // KH and KW
  int64_t stride = 1;                  // along both axes
  int64_t padding = 0;                 // zeros on each side
};

// x (N, H, W, C), weight (KH*KW*C, OC), bias (OC) or undefined; the result is (N, OH, OW, OC) with
// OH = (H + 2*padding - KH) / stride + 1, rounded down. Throws if the padded image is smaller than the kernel.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {});

// relu(conv2d(...)), in one pass each way if ambient().fuse and the kernels can.
Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {});

// Every size a kernel needs; letters as in the formula at the head of this file.
struct Conv2dSizes {
  int64_t N, H, W, C, OC, KH, KW, stride, padding, OH, OW;  // N counts images, the others pixels or channels
  bool tf32;                                                // f32 products may round their factors to TF32
  constexpr int64_t K() const { return KH * KW * C; }       // rows of the weight
};

// Throws Error (usage) if the shapes do not fit.
Conv2dSizes conv2d_sizes(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options);

struct Conv2dForward {  // x, weight, bias and y as in conv2d(), and their sizes
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Conv2dSizes& sizes;
  Tensor& y;
  bool relu = false;  // y = max(y, 0)
  auto tensors() const { return tensor_list(x, weight, bias, y); }
};
constinit inline Kernel<Conv2dForward> conv2d_forward{"conv2d_forward"};

// An inf or NaN in dy makes inf or NaN of all dbias and dweight of its output channel, but perhaps not of taps in the
// padding, and of some of dx, so an overflow shows in the gradients. The head of a variant's file says which zeros it
// multiplies by an inf or NaN in x or weight, which makes NaN of them. Skipping the zeros of dy hides no overflow: dy
// is 0 where the loss does not depend on y, and an inf or NaN in x or weight on which the loss depends makes dy inf or
// NaN.

// x and weight as in conv2d(), dy the gradient of its result. An undefined dx, dweight or dbias is not computed.
// `accumulate`: adds to the old dweight and dbias.
struct Conv2dBackward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  const Conv2dSizes& sizes;  // as conv2d_sizes() returns them
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  const Tensor& relu_y = no_tensor();  // after a forward pass with relu its y: where that is zero, dy counts as zero
  auto tensors() const { return tensor_list(x, weight, dy, dx, dweight, dbias, relu_y); }
};
constinit inline Kernel<Conv2dBackward> conv2d_backward{"conv2d_backward"};

// For the variants that leave the ReLU to its own kernels.
inline bool without_relu(const Conv2dForward& call) { return !call.relu; }
inline bool without_relu(const Conv2dBackward& call) { return !call.relu_y.defined(); }

}  // namespace hs
