// The fully connected layer: y = x w + b, over the last dimension.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// How a weight lies in memory, row-major.
enum class WeightOrder : uint8_t {
  in_out,  // weight is (in, out)
  out_in,  // weight is (out, in): a table of embeddings, used again to score each of its rows
};

// x is (..., in), of at least two dimensions; weight has two, in this order; bias is (out) or undefined. The result is
// (..., out). Throws Error: usage if a shape does not fit.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightOrder order = WeightOrder::in_out);

// All gradients at once: dx = dy weight', dweight = x' dy, dbias = the column sums of dy. Any of them may be undefined;
// with `accumulate` dweight and dbias are added to. x, weight, dy and dx have one type; dweight and dbias that one, or
// f32.
struct LinearBackward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& dy;
  bool accumulate;
  Tensor& dx;
  Tensor& dweight;
  Tensor& dbias;
  auto tensors() const { return tensor_list(x, weight, dy, dx, dweight, dbias); }
};
constinit inline Kernel<LinearBackward> linear_backward{"linear_backward"};

// The last layer of a classifier together with its loss: y = x weight + bias, (N, classes), then loss and dlogits of
// softmax_cross_entropy_with_gradient. linear() calls it where the targets are known (ambient().targets).
struct LinearWithLoss {
  const Tensor& x;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& labels;  // (N) i32
  const Tensor& dloss;   // what the loss's gradient is multiplied by
  Tensor& y;
  Tensor& loss;
  Tensor& dlogits;
  float smoothing = 0;  // of the labels
  auto tensors() const { return tensor_list(x, weight, bias, labels, dloss, y, loss, dlogits); }
};
constinit inline Kernel<LinearWithLoss> linear_with_loss{"linear_with_loss"};

}  // namespace hs
