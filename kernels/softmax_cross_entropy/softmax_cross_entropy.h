// Softmax and cross-entropy in one op, and the number of correct predictions.
//   loss = mean over rows of (log sum_j exp(z_j) - sum_j q_j z_j),  d loss / d z_j = (softmax(z)_j - q_j) / N
//   q_j = (1 - smoothing) [j == label] + smoothing / classes
// Label smoothing: Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016; as
// PyTorch's. The row maximum is subtracted first (log-sum-exp), so that large logits do not overflow.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// logits (N, classes), labels (N) i32; the result is a scalar, f32 even if the logits are f16 or bf16. Throws if N is
// 0. A label outside the classes is bad input data (exit code 3) on the CPU; a GPU cannot throw, there the loss is NaN.
//
// 16-bit logits are widened and all arithmetic is f32, in both directions: only the gradient is rounded, once, to the
// type of the logits. Backward keeps the logits themselves and recomputes the softmax, because f32 probabilities
// would be twice the size. As in PyTorch, the gradient of a label's logit is p - 1, whose error is that of p near 1:
// a few times 2^-24 |dloss| / N, even if the gradient is smaller than that (a logit that leads by 17 or more).
//
// dloss: the gradient of the loss, if it is known in advance, as the loss scale is. Where one kernel computes loss and
// gradient at once, it then does (unless ambient().fuse is off), with the same bits, and the gradient is kept in place
// of the logits. REQUIRES: backward() is given this very tensor
Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& dloss = {}, float smoothing = 0);

// Rows whose argmax() is the label; a row with a NaN is never correct. Waits for the device.
int64_t count_correct(const Tensor& logits, const Tensor& labels);

struct SoftmaxCrossEntropyForward {  // logits, labels, smoothing and loss as in softmax_cross_entropy()
  const Tensor& logits;
  const Tensor& labels;
  Tensor& loss;
  float smoothing = 0;
  auto tensors() const { return tensor_list(logits, labels, loss); }
};
constinit inline Kernel<SoftmaxCrossEntropyForward> softmax_cross_entropy_forward{"softmax_cross_entropy_forward"};

struct SoftmaxCrossEntropyBackward {  // dlogits = dloss times the gradient; logits, labels and smoothing as in forward
  const Tensor& logits;
  const Tensor& labels;
  const Tensor& dloss;
  Tensor& dlogits;
  float smoothing = 0;
  auto tensors() const { return tensor_list(logits, labels, dloss, dlogits); }
};
constinit inline Kernel<SoftmaxCrossEntropyBackward> softmax_cross_entropy_backward{"softmax_cross_entropy_backward"};

// The two at once.
struct SoftmaxCrossEntropyWithGradient {  // loss and dlogits from logits, labels, dloss and smoothing
  const Tensor& logits;
  const Tensor& labels;
  const Tensor& dloss;
  Tensor& loss;
  Tensor& dlogits;
  float smoothing = 0;
  auto tensors() const { return tensor_list(logits, labels, dloss, loss, dlogits); }
};
constinit inline Kernel<SoftmaxCrossEntropyWithGradient> softmax_cross_entropy_with_gradient{
    "softmax_cross_entropy_with_gradient"};

// The target probabilities q of a row: one-hot, or smoothed.
template <class Real>
struct TargetRow {
  Real others, label;  // for each other class, and for the label's
  TargetRow(float smoothing, int64_t classes)
      : others(static_cast<Real>(smoothing) / static_cast<Real>(classes)),
        label(1 - static_cast<Real>(smoothing) + others) {}  // smoothing: 0 is one-hot
};

}  // namespace hs
