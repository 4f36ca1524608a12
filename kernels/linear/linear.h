// The fully connected layer: y = x w + b, over the last dimension.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// How a weight lies in memory, row-major.
enum class WeightOrder : uint8_t {
  in_out,  // weight is (in, out)
  out_in,  // weight is (out, in): as a table of embeddings that scores each of its rows, or a factor of LoRA's
};

// x is (..., in), of at least two dimensions; weight has two, laid out as `order` says; bias is (out) or undefined. The
// result is (..., out). Throws Error: usage if a shape does not fit.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightOrder order = WeightOrder::in_out);

// All gradients at once: dx = dy weight', dweight = x' dy, dbias = the column sums of dy. Any of them may be undefined;
// with `accumulate` dweight and dbias are added to. x, weight, dy and dx have one type; dweight and dbias that one, or
// f32. dweight has the order of weight; with `tf32` products may round their factors, see GemmOptions.
struct LinearBackward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  WeightOrder order;
  bool tf32;
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  auto tensors() const { return tensor_list(x, weight, dy, dx, dweight, dbias); }
};
constinit inline Kernel<LinearBackward> linear_backward{"linear_backward"};

}  // namespace hs
