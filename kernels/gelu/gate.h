// GELU on vectors, with the exponential of kernels/cpu/vector_math.h. No `#pragma once`: a file that
// kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA part, and kernels/gelu/gelu.h and
// <bit> before it.
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {

// As GeluGate.
struct GeluGates {
  Vec s, rest, slope;
  explicit GeluGates(Vec x) {
    constexpr auto linear = static_cast<float>(gelu_linear), per_square = static_cast<float>(gelu_cubic);
    const Vec cubic = smaller(broadcast(gelu_most_square), x * x) * per_square;
    const Vec minus_abs = __builtin_bit_cast(Vec, __builtin_bit_cast(Ints, x) | INT32_MIN);
    const Vec e = exp_of_bounded(minus_abs * (linear + cubic));
    const Vec more = reciprocal(1.0f + e), less = e * more;
    s = x > 0.0f ? more : less;
    rest = x > 0.0f ? less : more;
    slope = linear + 3.0f * cubic;
  }
  Vec gradient(Vec x, Vec dy) const { return dy * fma(x * (s * rest), slope, s); }
};

}  // namespace hs::HS_ISA
