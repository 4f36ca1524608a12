// Times a variant that is judged beside one of the project's own, each in a process of its own, so that nothing is
// gained by anything but speed: every call gets fresh numbers at another place, and every output is compared.
#pragma once

#include <string>
#include <vector>

#include "bench/judge/examiner.h"
#include "bench/measure/kernel_timing.h"

namespace hs::bench::judge {

struct TimedResult {
  std::string what, against;                     // the call's sizes and type; the variant beside it
  std::vector<double> seconds, seconds_against;  // of one call, by rounds
};

// The variant that makes the slot's call in this case in the program itself, or, if it is `judged`, the next best one.
std::string variant_beside(const examples::TimedCase& timed, KernelSlot& slot, DType type, const std::string& judged);

struct TimingPlan {
  int64_t batch = 64, rounds = 15;
  double seconds = 2;  // no new round after it, from the sixth one on
  uint64_t seed = 0;   // of what the calls work on
  std::vector<examples::TimedCase> cases = examples::timed_cases(batch);
};

// judged, against: have been told the variants. The slot's call in plan.cases[index]. If it cannot be timed, the result
// has no seconds, and `what` says why. Throws Refusal: timed, precision, inputs, leftover, and what Examiner throws.
TimedResult time_case(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index, DType type,
                      const TimingPlan& plan);

}  // namespace hs::bench::judge
