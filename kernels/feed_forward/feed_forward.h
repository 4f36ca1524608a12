// Two fully connected layers with a ReLU between them: y = max(x w1 + b1, 0) w2 + b2, as one op, so that everything
// between the four matrix products happens in their epilogues: bias, ReLU and its mask forward, the ReLU's derivative
// and the sum for b1's gradient backward.
#pragma once

#include "engine/autograd.h"

namespace hs {

// x (N, in), weight1 (in, hidden), bias1 (hidden), weight2 (hidden, out), bias2 (out); the result is (N, out).
Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, const Tensor& weight2,
                    const Tensor& bias2);

}  // namespace hs
