// What backward passes share. Weight gradients are summed over samples in groups, which are then added in a fixed
// order: a thread computes one or more groups, and the sum does not depend on which. And dx is a convolution of dy with
// the weights turned around: with a stride s the pixels of dx whose row and column have the same remainders by s see
// the same weights. So there are s * s convolutions, one for each pair of remainders, with every s-th row and column of
// the kernel. Internal to the CPU variants of conv2d and conv2d_pool_relu.
#pragma once

#include <functional>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parts.h"

namespace hs {

inline int64_t conv2d_groups(const Conv2dSizes& s) { return s.N < 16 ? s.N : 16; }

// gradient (+)= the sums of the groups. Nothing if it is undefined.
template <class Real>
void add_groups(const Conv2dSizes& s, const Each<Real>& sums, bool accumulate, Tensor& gradient) {
  add_groups<Real>(sums.first, sums.size, conv2d_groups(s), accumulate, gradient);
}

// The same for a dweight (K, OC) whose sums have an order of their own: that of (k, oc) is at place(k) + oc * stride.
// The totals remain in the first group's sums. A `place` of at most two references costs no allocation.
void add_groups(const Conv2dSizes& s, const Each<float>& groups, bool accumulate, Tensor& dweight, int64_t stride,
                const std::function<int64_t(int64_t k)>& place);

// The pixels of dx in one direction that see the kernel's elements first, first + stride, ... Pixel
// stride * u + first - padding sees dy[u], dy[u - 1], ...: `taps` of them.
struct Phase {
  int64_t first, taps, begin, end;  // u = begin ... end - 1
  int64_t reached;                  // a tap reaches dy from u = begin ... reached - 1
  int64_t pixel;                    // of u = begin
  Phase(int64_t first_, int64_t kernel, int64_t size, int64_t out, const Conv2dSizes& s) : first(first_) {
    taps = first < kernel ? (kernel - first + s.stride - 1) / s.stride : 0;
    begin = (s.padding - first + s.stride - 1) / s.stride;
    end = (size - 1 + s.padding - first + s.stride) / s.stride;
    reached = taps > 0 ? std::clamp(out + taps - 1, begin, end) : begin;
    pixel = begin * s.stride + first - s.padding;
  }
};

// Calls body(rows, columns) for the phases of dx.
template <class Body>
void for_phases(const Conv2dSizes& s, const Body& body) {
  for (int64_t i = 0; i < s.stride * s.stride; ++i) {
    body(Phase(i / s.stride, s.KH, s.H, s.OH, s), Phase(i % s.stride, s.KW, s.W, s.OW, s));
  }
}

// Rows of `count` elements to rows of `to_row`.
template <class T, class Element>
void copy_rows(const T* from, int64_t rows, int64_t count, Element* to, int64_t to_row) {
  for (int64_t row = 0; row < rows; ++row) copy_elements(from + row * count, count, to + row * to_row);
}

// An image with its padding, and zeros behind it, up to `size` elements.
template <class T, class Element>
void copy_padded(const Conv2dSizes& s, const T* image, Element* padded, int64_t size) {
  const int64_t row = (s.W + 2 * s.padding) * s.C;
  std::fill_n(padded, size, Element{});
  copy_rows(image, s.H, s.W * s.C, padded + s.padding * (row + s.C), row);
}

}  // namespace hs
