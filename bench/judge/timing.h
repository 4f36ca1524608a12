// Times a variant that is judged beside one of the project's own, each in a process of its own, so that nothing is
// gained by anything but speed: every call gets fresh numbers at another place, every output is compared, and what is
// faster than the machine can be is refused.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/judge/examiner.h"
#include "bench/measure/kernel_timing.h"

namespace hs::bench::judge {

struct TimedResult {
  std::string what, against;                     // the call's sizes and type; the variant beside it
  std::vector<double> seconds, seconds_against;  // of one call, by rounds
};

// Rates that no kernel on this machine can exceed.
struct Ceilings {
  double flops = 0;  // of measure::Peaks
  double bytes = 0;  // per second: all threads copy what their caches hold
};
Ceilings measure_ceilings();

// The least time for a call: every tensor is read or written once from the caches, and the fewest products of any known
// algorithm are made: Winograd's F(6 x 6, 3 x 3) for convolutions (Lavin, Gray, "Fast algorithms for convolutional
// neural networks", 2015), Strassen's for matrices down to 64 (1969), none where a factor is 0. nonzero: the part of
// the products that have none.
double least_seconds(const std::string& slot, std::span<const Shape> shapes, double bytes, DType type, double nonzero,
                     const Ceilings& ceilings);

// The variant that makes the slot's call in this case in the program itself, or, if it is `judged`, the next best one.
std::string variant_beside(const examples::TimedCase& timed, KernelSlot& slot, DType type, const std::string& judged);

struct TimingPlan {
  int64_t batch = 64, rounds = 15;
  double seconds = 2;  // no new round after it, from the sixth one on
  uint64_t seed = 0;   // of what the calls work on
  std::vector<examples::TimedCase> cases = examples::timed_cases(batch);
};

// judged, against: have been told the variants. The slot's call in plan.cases[index].
// Returns nothing if a variant does not take it. Throws Refusal: timed, precision, inputs, leftover, floor, and what
// Examiner throws. Measures the ceilings again before it refuses by them.
std::optional<TimedResult> time_case(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index,
                                     DType type, const TimingPlan& plan, Ceilings& ceilings);

}  // namespace hs::bench::judge
