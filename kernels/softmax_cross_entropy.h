// Softmax and cross-entropy in one op, and the number of correct predictions.
//   loss = mean over rows of (log sum_j exp(z_j) - z_label),  d loss / d z_j = (softmax(z)_j - [j == label]) / N
// The row maximum is subtracted first (log-sum-exp), so that large logits do not overflow.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// logits (N, classes), labels (N) i32; the result is a scalar, f32 also where the logits are f16 or bf16. Throws if N
// is 0. A label outside the classes is bad input data (exit code 3) on the CPU; a GPU cannot throw, there the loss is
// NaN.
Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels);

// Rows whose largest logit, the first one in a tie, is the label's; a row with a NaN is never correct.
int64_t count_correct(const Tensor& logits, const Tensor& labels);

constinit inline Kernel<void(const Tensor& logits, const Tensor& labels, Tensor& loss, Tensor& probabilities)>
    softmax_cross_entropy_forward{"softmax_cross_entropy_forward"};
constinit inline Kernel<void(const Tensor& probabilities, const Tensor& labels, const Tensor& dloss, Tensor& dlogits)>
    softmax_cross_entropy_backward{"softmax_cross_entropy_backward"};
constinit inline Kernel<void(const Tensor& logits, const Tensor& labels, Tensor& count)> argmax_matches{
    "argmax_matches"};

}  // namespace hs
