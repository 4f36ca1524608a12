// GELU in its tanh form, element by element (Hendrycks and Gimpel, "Gaussian error linear units", 2016; PyTorch's
// gelu(approximate="tanh"), GPT-2's):
//   y = x (1 + t) / 2,  t = tanh(u),  u = sqrt(2 / pi) (x + 0.044715 x^3)
//   dy/dx = (1 + t) / 2 + x (1 - t^2) / 2 * sqrt(2 / pi) (1 + 0.134145 x^2)
// Kernels compute it with s = (1 + t) / 2 and (1 - t^2) / 4 = s (1 - s). With e = exp(-2 |u|), s and 1 - s are
// 1 / (1 + e) and e / (1 + e), or the other way round for x < 0: one exponential, which cannot overflow, and small
// values keep the digits that 1 + t would cancel. NaN stays NaN; -inf gives NaN, as 0 * inf does, and so does the
// derivative at inf and -inf.
#pragma once

#include <cmath>

#include "engine/autograd.h"
#include "engine/host_device.h"
#include "engine/kernel.h"

namespace hs {

Tensor gelu(const Tensor& x);  // of any float type; keeps x

struct GeluForward {  // y from x, by the formula above
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<GeluForward> gelu_forward{"gelu_forward"};

struct GeluBackward {  // dx = dy times the derivative at x
  const Tensor& x;
  const Tensor& dy;
  Tensor& dx;
  auto tensors() const { return tensor_list(x, dy, dx); }
};
constinit inline Kernel<GeluBackward> gelu_backward{"gelu_backward"};

// 2 u = x (gelu_linear + gelu_cubic x^2), and its derivative has 3 gelu_cubic. x^2 is bounded, so that the derivative
// stays finite where s (1 - s) is 0.
inline constexpr double gelu_linear = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double gelu_cubic = 0.07135481627260025;  // 0.044715 of it
inline constexpr float gelu_most_square = 1e6f;            // bound on x^2

// s of the formula at x, and what its gradient needs beside it.
template <class Real>
struct GeluGate {
  Real s, rest, slope;                        // s, 1 - s and d(2 u)/dx
  HS_HOST_DEVICE explicit GeluGate(Real x) {  // computes all three
    constexpr auto linear = static_cast<Real>(gelu_linear), per_square = static_cast<Real>(gelu_cubic);
    const Real square = x * x, cubic = (square > gelu_most_square ? Real{gelu_most_square} : square) * per_square;
    const Real e = std::exp(-std::fabs(x) * (linear + cubic)), larger = 1 / (1 + e), smaller = e * larger;
    s = x > 0 ? larger : smaller;
    rest = x > 0 ? smaller : larger;
    slope = linear + 3 * cubic;
  }
  // Of x, the one that it was made with.
  HS_HOST_DEVICE Real gradient(Real x, Real dy) const { return dy * (s + x * (s * rest) * slope); }
};

}  // namespace hs
