// Slots of the kernels that the engine and the loader call. An op declares its own slots, in kernels/; these belong to
// no op, and engine/ and data/ do not depend on kernels/. The folder named above each slot implements it.
#pragma once

#include "engine/kernel.h"
#include "engine/tensor.h"

namespace hs {

// kernels/accumulate/: y += x.
struct Accumulate {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<Accumulate> accumulate{"accumulate"};

// kernels/cast/: y = x, rounded to the nearest value of y's type.
struct CastForward {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<CastForward> cast_forward{"cast_forward"};

// kernels/gather_samples/: out[i] = set[samples[i]], a batch from a set that is on the device. set (count, H, W, C) u8,
// samples (N) i32, out (N, H, W, C) u8. REQUIRES: every sample is in 0 .. count-1
struct GatherSamples {
  const Tensor& set;
  const Tensor& samples;
  Tensor& out;
  auto tensors() const { return tensor_list(set, samples, out); }
};
constinit inline Kernel<GatherSamples> gather_samples{"gather_samples"};

}  // namespace hs
