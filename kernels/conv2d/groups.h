// Weight gradients are summed over samples in groups, which are then added in a fixed order: a thread computes one or
// more groups, and the sum does not depend on which. Internal to the CPU variants of conv2d and conv2d_pool_relu.
#pragma once

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"

namespace hs {

inline int64_t conv2d_groups(const Conv2dSizes& s) { return s.N < 16 ? s.N : 16; }

// gradient (+)= the sums of the groups, each `stride` elements behind the one before. Nothing if it is undefined.
template <class Real>
void add_groups(const Conv2dSizes& s, const Real* sums, int64_t stride, bool accumulate, Tensor& gradient) {
  if (!gradient.defined()) return;
  update_gradient(gradient, accumulate, [=, groups = conv2d_groups(s)](int64_t i, Real total) {
    for (int64_t group = 0; group < groups; ++group) total += sums[group * stride + i];
    return total;
  });
}

// The same for a dweight (K, OC) whose sums (groups, size) have an order of their own: that of (k, oc) is at
// place(k, oc). Adds all groups into the first.
template <class Place>
void add_groups(const Conv2dSizes& s, float* sums, int64_t size, bool accumulate, Tensor& dweight, const Place& place) {
  if (!dweight.defined()) return;
  const int64_t groups = conv2d_groups(s);
  parallel_ranges(size, elementwise_grain / 16, [&](int64_t begin, int64_t end) {
    for (int64_t group = 1; group < groups; ++group) {
      for (int64_t i = begin; i < end; ++i) sums[i] += sums[group * size + i];
    }
  });
  update_gradient(dweight, accumulate, [&](int64_t i, float before) {
    return groups == 0 ? before : before + sums[place(i / s.OC, i % s.OC)];
  });
}

}  // namespace hs
