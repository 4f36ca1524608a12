// The product of gemm's "avx512_fp16" variant, for any arithmetic that sums in f16. Internal to avx512_fp16.cpp and its
// test.
//
// Of each pair one lane adds the products of even k and one those of odd k, in f16. After 16 pairs both are added, and
// f32 sums grow by that. So results are off by about u = 2^-11 of their size, as storing them in f16 costs once more,
// where f32 sums are off by 2^-24; what is below 2^-25 is lost, and a training must scale its loss. So no machine
// chooses this variant by itself.
//
// Sums beyond 65504 become infinite in f16, and sums in f32 do not. So a strip with a sum that is not finite is
// multiplied again in f32, whether its factors are infinite, NaN or just large: it is right, only slower.
#pragma once

#include "kernels/gemm/blocked.h"

namespace hs::blocked {

inline constexpr int64_t half_chain = 16;  // products that a lane adds in f16

// 16 roundings in a lane and one of the pair, each by up to 2^13 times f32's, beside the 8 sqrt(K) that sums of K
// values are allowed: the most is 17 * 2^13 / (8 * sqrt(32)), at K = 32.
inline constexpr double half_growth = 3080;

template <class Arithmetic>
struct HalfProduct : PairedStrips<Half, Arithmetic> {
  static constexpr int64_t max_rows = 512, max_sums = 512 * 128, max_shared = 1 << 18;  // as "blocked" has them
};

}  // namespace hs::blocked
