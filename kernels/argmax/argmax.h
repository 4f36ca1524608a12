// The place of the largest number of each row.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/host_device.h"
#include "engine/kernel.h"

namespace hs {

// x is (..., C) of any float type; the result is (R), i32, of its R rows: the place of the largest number, the first
// one in a tie, or -1 if the row has a NaN. Has no gradient. Throws if C is 0.
Tensor argmax(const Tensor& x);

struct ArgmaxForward {  // place, (R) i32, from x, as argmax() says
  const Tensor& x;
  Tensor& place;
  auto tensors() const { return tensor_list(x, place); }
};
constinit inline Kernel<ArgmaxForward> argmax_forward{"argmax_forward"};

// The largest number so far and its place, in whatever order numbers and places come.
template <class Real>
struct Largest {
  Real value = -static_cast<Real>(INFINITY);     // and then that of `place`
  int32_t place = INT32_MAX;                     // after the last
  HS_HOST_DEVICE void add(Real x, int32_t at) {  // a NaN counts as an infinity before the first
    if (x != x) x = static_cast<Real>(INFINITY), at = -1;
    if (x > value || (x == value && at < place)) value = x, place = at;
  }
};

}  // namespace hs
