// Sets a fraction `rate` of the elements to zero and scales the rest by 1/(1 - rate), so that the mean is unchanged
// (Srivastava et al., "Dropout", JMLR 2014). Element i is dropped by number i of a random stream: the same stream gives
// the same mask, so nothing is saved for backward.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"
#include "engine/random.h"

namespace hs {

// Identity when rate is 0. `step`, an i32 scalar on x's device or undefined, is added to stream.step when the kernel
// runs. REQUIRES: 0 <= rate < 1.
Tensor dropout(const Tensor& x, double rate, const RandomStream& stream, const Tensor& step = {});

// Both directions: y[i] = kept(i) ? x[i] / (1 - rate) : 0.
struct DropoutMask {
  const Tensor& x;
  double rate;
  const RandomStream& stream;
  const Tensor& step;
  Tensor& y;
  auto tensors() const { return tensor_list(x, step, y); }
};
constinit inline Kernel<DropoutMask> dropout_mask{"dropout_mask"};

// Element i is kept if number i of the stream is at least this.
HS_HOST_DEVICE constexpr uint32_t dropout_threshold(double rate) { return static_cast<uint32_t>(rate * 4294967296.0); }

}  // namespace hs
