// 2-D convolution (cross-correlation, as every framework means it) on NHWC images.
//   y[n, oh, ow, oc] = bias[oc] + sum over kh, kw, c of x[n, oh*stride + kh - padding, ow*stride + kw - padding, c]
//                                                      * weight[(kh*KW + kw)*C + c, oc]
// The weight is a matrix (KH*KW*C, OC), so that the convolution is a GEMM whose result is NHWC without a transpose.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

struct Conv2dOptions {
  int64_t kernel_h = 3, kernel_w = 3;
  int64_t stride = 1;
  int64_t padding = 0;  // zeros on each side
};

// x (N, H, W, C), weight (KH*KW*C, OC), bias (OC) or undefined; the result is (N, OH, OW, OC) with
// OH = (H + 2*padding - KH) / stride + 1, rounded down. Throws if the image is smaller than the kernel.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options = {});

// Every size a kernel needs; letters as in the formula above.
struct Conv2dSizes {
  int64_t N, H, W, C, OC, KH, KW, stride, padding, OH, OW;
  bool tf32;  // f32 products may round their factors to TF32
  constexpr int64_t K() const { return KH * KW * C; }
};

struct Conv2dForward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Conv2dSizes& sizes;
  Tensor& y;
  auto tensors() const { return tensor_list(x, weight, bias, y); }
};
constinit inline Kernel<Conv2dForward> conv2d_forward{"conv2d_forward"};

// An undefined dx, dweight or dbias is not computed. `accumulate`: the latter two are added to what they hold.
//
// Inf and NaN: one in dy makes every element of dbias and dweight of its output channel inf or NaN, and some of dx, in
// every variant, so that an overflow is seen by whoever looks at the gradients. For the rest, 0 * inf is NaN, and
// variants differ in the zeros that they multiply; the head of each says which.
//   naive                those in dy, not those of the padding: there dweight has no inf or NaN of taps that see only
//   it im2col               all of the formula: those in dy, and those of the padding direct, avx512_bf16  not those in
//   dy: an inf or NaN in x or weight contributes nothing where dy is 0 amx                  also those that it puts
//   around the data: NaN reaches elements that do not use the inf
// Skipping the zeros of dy hides no overflow: dy is 0 where the loss does not depend on y, and an inf or NaN in x or
// weight on which the loss depends makes dy inf or NaN.
struct Conv2dBackward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  const Conv2dSizes& sizes;
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  auto tensors() const { return tensor_list(x, weight, dy, dx, dweight, dbias); }
};
constinit inline Kernel<Conv2dBackward> conv2d_backward{"conv2d_backward"};

// Weight gradients are summed over samples in this many groups, which then meet in a fixed order: the work of one
// thread is one group or several, and the sum does not depend on which.
inline int64_t conv2d_groups(const Conv2dSizes& s) { return s.N < 16 ? s.N : 16; }

}  // namespace hs
