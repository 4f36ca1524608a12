// What a training step waits for: the profile of a few steps, and one verdict on it.
#pragma once

#include <functional>
#include <string>

#include "bench/measure/kernel_timing.h"

namespace hs::bench::measure {

// Of one step, in seconds. step = wait + gaps + the three kinds of kernels, up to the noise between two measurements:
// the whole is timed undisturbed, the kernels in steps of their own.
struct StepTimes {
  double step = 0;
  double wait = 0;     // for the batch
  double gaps = 0;     // no kernel ran: launches, allocation, the tape
  double tiny = 0;     // in kernels of under 20 us that reach less than 5 % of either peak: they are launches too
  double compute = 0;  // in kernels that are nearer to the peak of arithmetic than to that of memory
  double memory = 0;   // in the others
  double flops = 0;    // of a step
  double bytes = 0;    // that the kernels of a step read and wrote
};

// load() gets a batch, step() works on it. Both are called `steps` times undisturbed, and step() a few times more.
StepTimes measure_step_times(const std::function<void()>& load, const std::function<void()>& step, int steps,
                             Device device, const Peaks& peaks);

enum class Bound { data, launch, memory, compute };

struct Verdict {
  Bound bound;
  std::string name;    // "data-bound"
  std::string reason;  // one sentence, with the number behind it
  std::string advice;  // which switch to try next
};

// Data-bound if a tenth of the step is waiting; else launch-bound if a third of the rest is gaps and tiny kernels; else
// bound by whichever its kernels spend more time on.
Verdict diagnose(const StepTimes& profile, Device device);

}  // namespace hs::bench::measure
