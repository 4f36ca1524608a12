// GELU on vectors, with the exponential of kernels/cpu/vector_math.h. No `#pragma once`: a file that
// kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA part, and kernels/gelu/gelu.h and
// <bit> before it.
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {

// As GeluGate, where |x| <= 10; beyond, s and 1 - s are below 2^-125 or 1, and x times what is below is as good as 0.
struct GeluGates {
  Vec bounded, x, s, rest, slope;  // x: not below -10; bounded: within 10 of 0, too
  explicit GeluGates(Vec value) : x(larger(broadcast(-10.0f), value)) {
    // -2 u, and its terms, times log2 e: what is asked of exp2_of_bounded().
    constexpr auto linear = static_cast<float>(-gelu_linear * M_LOG2E),
                   cubic = static_cast<float>(-gelu_cubic * M_LOG2E);
    bounded = smaller(broadcast(10.0f), x);
    const Vec square = bounded * bounded;
    Vec e[] = {bounded * fma(square, broadcast(cubic), broadcast(linear))};
    exp2_of_bounded(e);
    s = reciprocal(1.0f + e[0]);
    rest = e[0] * s;
    slope = fma(square, broadcast(static_cast<float>(3 * gelu_cubic)), broadcast(static_cast<float>(gelu_linear)));
  }
  Vec value() const { return x * s; }
  Vec gradient(Vec dy) const { return dy * fma(bounded * (s * rest), slope, s); }
};

}  // namespace hs::HS_ISA
