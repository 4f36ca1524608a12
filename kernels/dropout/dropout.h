// Sets a fraction `rate` of the elements to zero and scales the rest, so that the mean is unchanged (Srivastava et al.,
// "Dropout", JMLR 2014). A random number decides about each element: the same stream gives the same mask, so nothing is
// saved for backward.
//
// A number has 16 bits, because random numbers are what dropout costs: one Philox block decides about eight elements.
// So the rate is rounded to a multiple of 2^-16, and the scale is that of the rounded rate.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"
#include "engine/random.h"

namespace hs {

// Identity when rate is 0. `step`, an i32 scalar on x's device or undefined, is added to stream.step when the kernel
// runs. REQUIRES: 0 <= rate < 1.
Tensor dropout(const Tensor& x, double rate, const RandomStream& stream, const Tensor& step = {});

// The arguments of dropout(), for ops that drop in a kernel of their own.
struct DropoutRule {
  double rate = 0;           // 0 drops nothing
  RandomStream stream = {};  // of the random numbers
  Tensor step = {};          // undefined: 0
};

// Both directions: y[i] = kept(i) ? x[i] * dropout_scale(rate) : 0.
struct DropoutMask {  // stream and step as in dropout()
  const Tensor& x;
  double rate;
  const RandomStream& stream;
  const Tensor& step;
  Tensor& y;
  auto tensors() const { return tensor_list(x, step, y); }
};
constinit inline Kernel<DropoutMask> dropout_mask{"dropout_mask"};

inline constexpr int dropout_group = 8;  // elements for which one block of random numbers decides

// Element i is kept if its number is at least this: the rate in units of 2^-16, at least one and never all, so that any
// rate above 0 drops elements and any rate below 1 keeps some.
HS_HOST_DEVICE constexpr uint32_t dropout_threshold(double rate) {
  if (rate <= 0) return 0;
  const auto nearest = static_cast<uint32_t>(rate * 65536 + 0.5);
  return nearest < 1 ? 1 : nearest > 65535 ? 65535 : nearest;
}

// Whether element i of a group of dropout_group is kept: by number i of its block, read as eight little-endian 16-bit
// numbers, which is the low half of word i / 2 if i is even, and the high one if i is odd.
HS_HOST_DEVICE constexpr bool dropout_keeps(const Random4& block, int i, uint32_t threshold) {
  return (block.word[i / 2] >> (i % 2 * 16) & 0xffffu) >= threshold;
}

// 1 / (the fraction of numbers that keep their element).
HS_HOST_DEVICE constexpr double dropout_scale(double rate) { return 65536.0 / (65536 - dropout_threshold(rate)); }

}  // namespace hs
