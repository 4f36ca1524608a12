// Slots of the kernels that the engine and the loader call. An op declares its own slots, in kernels/; these belong to
// no op, and engine/ and data/ do not depend on kernels/. The folder named above each slot implements it.
#pragma once

#include "engine/kernel.h"
#include "engine/tensor.h"

namespace hs {

// kernels/elementwise/: y from a and b, all of one shape and type; y may be one of the others. Of a sum b may also have
// 16 bits where a and y are f32.
struct BinaryForward {
  const Tensor& a;
  const Tensor& b;
  Tensor& y;
  auto tensors() const { return tensor_list(a, b, y); }
};
constinit inline Kernel<BinaryForward> add_forward{"add_forward"};
inline void accumulate(const Tensor& x, Tensor& y) { add_forward({y, x, y}); }  // y += x

// kernels/cast/: y = x, rounded to the nearest value of y's type.
struct CastForward {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<CastForward> cast_forward{"cast_forward"};

// kernels/gather_samples/: out[i] = set[samples[i]], a batch from a set that is on the device. set (count, H, W, C)
// u8 or f32, samples (N) i32, out (N, H, W, C) as the set. REQUIRES: every sample is in 0 .. count-1
struct GatherSamples {
  const Tensor& set;
  const Tensor& samples;
  Tensor& out;
  auto tensors() const { return tensor_list(set, samples, out); }
};
constinit inline Kernel<GatherSamples> gather_samples{"gather_samples"};

}  // namespace hs
