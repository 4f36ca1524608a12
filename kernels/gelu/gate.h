// GELU on vectors, with the exponential of kernels/cpu/vector_math.h. No `#pragma once`: a file that
// kernels/cpu/each_isa.h compiles includes it once per instruction set, in its HS_ISA part, and kernels/gelu/gelu.h and
// <bit> before it.
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {

// As GeluGate.
struct GeluGates {
  Vec s, rest, slope;
  explicit GeluGates(Vec x) {
    // 2 u, and its terms, times log2 e: what is asked of exp2().
    constexpr auto linear = static_cast<float>(gelu_linear * M_LOG2E),
                   per_square = static_cast<float>(gelu_cubic * M_LOG2E);
    const Vec cubic = smaller(broadcast(gelu_most_square), x * x) * per_square;
    const Vec minus_abs = __builtin_bit_cast(Vec, __builtin_bit_cast(Ints, x) | INT32_MIN);
    Vec e[] = {minus_abs * (linear + cubic)};
    exp2(e);
    const Vec more = reciprocal(1.0f + e[0]), less = e[0] * more;
    s = x > 0.0f ? more : less;
    rest = x > 0.0f ? less : more;
    slope = fma(cubic, broadcast(static_cast<float>(3 / M_LOG2E)), broadcast(static_cast<float>(gelu_linear)));
  }
  Vec gradient(Vec x, Vec dy) const { return dy * fma(x * (s * rest), slope, s); }
};

}  // namespace hs::HS_ISA
