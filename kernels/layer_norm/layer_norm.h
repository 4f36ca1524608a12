// Layer normalisation over the last dimension, row by row:
//   y = n * scale + shift,  n = (x - mean) * r,  r = 1 / sqrt(variance + epsilon),  variance = mean((x - mean)^2)
// Ba, Kiros and Hinton, "Layer normalization", 2016. Backward, with g = dy * scale:
//   dx = r * (g - mean(g) - n * mean(g * n)),  dscale = sum over rows of dy * n,  dshift = sum over rows of dy
// x is saved, and two floats per row; n is recomputed. Variant simd and CUDA add up in f32: if the squares exceed its
// range, with numbers of 1e18 and more, n is 0; if the row's sum does, NaN. Variant simple adds up in f64.
#pragma once

#include <optional>

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C) of any float type; scale and shift are (C), f32 (f64 if x is f64), and shift may be undefined. The
// result has x's shape, and x's type unless `type` asks for 16 bits of an f32 x: those to which the product that
// follows, in an Autocast scope, would round it. All arithmetic is f32 or more exact, rounded once. Throws Error: usage
// if a shape or a type does not fit, or C is 0.
Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift = {}, double epsilon = 1e-5,
                  std::optional<DType> type = {});

// y has x's type, or 16 bits where x is f32. rows is (R, 2): mean and r of each of the R rows, of scale's type.
struct LayerNormForward {  // x, scale, shift, epsilon and y as in layer_norm()
  const Tensor& x;
  const Tensor& scale;
  const Tensor& shift;
  double epsilon;
  Tensor& rows;
  Tensor& y;
  auto tensors() const { return tensor_list(x, scale, shift, rows, y); }
};
constinit inline Kernel<LayerNormForward> layer_norm_forward{"layer_norm_forward"};

// Any of the outputs may be undefined; with `accumulate`, dscale and dshift are added to.
struct LayerNormBackward {  // x, scale and rows as in forward, dy like y, dx like x
  const Tensor& x;
  const Tensor& scale;
  const Tensor& rows;
  const Tensor& dy;
  bool accumulate;
  Tensor& dx;
  Tensor& dscale;
  Tensor& dshift;
  auto tensors() const { return tensor_list(x, scale, rows, dy, dx, dscale, dshift); }
};
constinit inline Kernel<LayerNormBackward> layer_norm_backward{"layer_norm_backward"};

// On the CPU, rows are processed in this many groups, each with its own sums for dscale and dshift, which are then
// added in order: any number of threads gives the same bits.
inline constexpr int64_t layer_norm_groups = 32;

}  // namespace hs
