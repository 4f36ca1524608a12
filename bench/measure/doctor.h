// Profiles a few training steps and names their bottleneck.
#pragma once

#include "bench/measure/experiment.h"
#include "bench/measure/kernel_timing.h"
#include "bench/measure/row.h"

namespace hs::bench::measure {

// Seconds per step. step = wait + gaps + the three kinds of kernels, up to the noise between two measurements: the
// whole step is timed undisturbed, the kernels in separate steps.
struct StepTimes {
  double step = 0;
  double wait = 0;     // for the batch
  double gaps = 0;     // when no kernel ran: launches, allocation, the tape
  double tiny = 0;     // in kernels of under 20 us that reach less than 5 % of either peak: launch overhead too
  double compute = 0;  // in kernels that are nearer to the arithmetic peak than to the memory peak
  double memory = 0;   // in the other kernels
  double flops = 0;    // per step
  double bytes = 0;    // read and written by kernels, per step
};

// load() fetches a batch, step() trains on it. Calls both `steps` times undisturbed, then a few times more to time the
// kernels.
StepTimes measure_step_times(const std::function<void()>& load, const std::function<void()>& step, int steps,
                             Device device, const Peaks& peaks);

enum class Bound { data, launch, memory, compute, communication };

struct Verdict {
  Bound bound;
  std::string name;    // "data-bound"
  std::string reason;  // one sentence, with the number behind it
  std::string advice;  // what else to try, beside the switches that can be timed
};

// Data-bound if waiting exceeds a tenth of the step; otherwise launch-bound if gaps and tiny kernels exceed a third of
// the rest; otherwise memory-bound or compute-bound, by the kind of kernel that takes longer.
Verdict diagnose(const StepTimes& profile, Device device);

// A change of the training that may help with what it is bound by.
struct Switch {
  std::string flags;  // of `train`: "--precision bf16"
  Experiment with;
  SpeedUp gain = {};  // of seconds a sample, without and with it: see time_switches()
};
std::vector<Switch> switches_for(Bound bound, const Experiment& experiment);

// Trains a little with each and without, in turns, each run 0.2 seconds or so: `step` is what a step takes without.
// Checks for signals. Throws what a run throws.
void time_switches(std::vector<Switch>& switches, const Experiment& experiment, const SampleSource& samples,
                   double step);

// Seconds of training over several ranks, as one of them sees it.
struct RankTimes {
  double training;
  double waiting;  // of its steps, for sums over ranks after backward
  double active;   // with a sum in progress
  double exposed;  // of them, in which training did nothing else
};

// Communication-bound if a tenth of training is waiting for sums; else bound by what the rank itself does, which doctor
// profiles in one process. The reason names the overlap, 1 - exposed / active.
Verdict diagnose_ranks(const RankTimes& times);

}  // namespace hs::bench::measure
