// The fastest that this CPU multiplies and adds in f32: kernels are measured against it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/measure/kernel_timing.h"
#include "engine/parallel.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

namespace hs::HS_ISA {
namespace {

// Independent multiply-adds: enough sums to hide their latency. Returns a number that depends on all of them.
float multiply_add(float first, int64_t steps) {
  const Vec factor = broadcast(first);
  Vec sum[peak_sums];
  for (int i = 0; i < peak_sums; ++i) sum[i] = broadcast(static_cast<float>(i));  // all different
  for (int64_t i = 0; i < steps; ++i) {
    for (auto& s : sum) s = fma(s, factor, factor);
  }
  Vec total{};
  for (const auto& s : sum) total += s;
  return total[0];
}

struct Rate {
  float (*multiply_add)(float first, int64_t steps);
  int64_t lanes;
};
constexpr Rate rate = {multiply_add, lanes};

}  // namespace
}  // namespace hs::HS_ISA

#else

namespace hs {
inline constexpr int peak_sums = 12;
}

#define HS_SOURCE "bench/measure/peak_flops.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs::bench::measure {

double peak_flops_of_cpu() {
  constexpr int64_t steps = 1 << 18, pieces = 64;
  std::vector<float> sink(static_cast<size_t>(pieces));
  const auto multiply_add = HS_FOR_THIS_CPU(rate.multiply_add);
  const int64_t lanes = HS_FOR_THIS_CPU(rate.lanes);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const Clock::time_point start = Clock::now();
    parallel(pieces, [&](int64_t piece, int) {
      sink[static_cast<size_t>(piece)] = multiply_add(0.5f + 0.001f * static_cast<float>(piece), steps);
    });
    const double seconds = seconds_since(start);
    best = std::max(best, 2.0 * static_cast<double>(lanes * peak_sums * steps * pieces) / seconds);
  }
  return std::isfinite(sink[0]) ? best : 0;
}

}  // namespace hs::bench::measure

#endif
