// Two linear layers without biases and a GELU between them, as in a transformer's block: y = gelu(x w1) w2. As one op,
// so that a kernel can take a block of rows through both products while it is in the caches: the hidden layer, which
// is the widest tensor of a block, goes to memory once, and its gradient never.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x (..., in), weight1 (in, hidden), weight2 (hidden, out) -> (..., out). Keeps x and x w1. Where no kernel of the op
// takes the call, without ambient().fuse and with one tensor as both weights it is linear(), gelu() and linear().
Tensor gelu_feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& weight2);

struct GeluFeedForwardForward {
  const Tensor& x;        // (N, in)
  const Tensor& weight1;  // (in, hidden)
  const Tensor& weight2;  // (hidden, out)
  Tensor& sum;            // x w1, (N, hidden)
  Tensor& y;              // (N, out)
  auto tensors() const { return tensor_list(x, weight1, weight2, sum, y); }
};
constinit inline Kernel<GeluFeedForwardForward> gelu_feed_forward_forward{"gelu_feed_forward_forward"};

struct GeluFeedForwardBackward {  // as above; dy is (N, out)
  const Tensor& x;
  const Tensor& weight1;
  const Tensor& weight2;
  const Tensor& sum;
  const Tensor& dy;
  bool accumulate;  // dweight1 and dweight2 are added to
  Tensor& dx;       // this and the next two are undefined if they are not wanted
  Tensor& dweight1;
  Tensor& dweight2;
  auto tensors() const { return tensor_list(x, weight1, weight2, sum, dy, dx, dweight1, dweight2); }
};
constinit inline Kernel<GeluFeedForwardBackward> gelu_feed_forward_backward{"gelu_feed_forward_backward"};

}  // namespace hs
