// Some steps of an experiment, profiled: the file that `train --trace` writes, and the timelines of reports.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/json_file.h"
#include "bench/measure/experiment.h"
#include "bench/measure/observers/profiler.h"

namespace hs::bench::measure {

struct StepProfile {
  Profile profile;                 // of the steps alone, without evaluation
  std::vector<float> loss_scales;  // after each step; f16 only
};

// Trains a throw-away model for two epochs of so many steps, from the first samples of the source, and profiles the
// second: caches are then full, and a graph is recorded. Throws what run_experiment throws.
StepProfile profile_steps(const Experiment& experiment, const SampleSource& train, const SampleSource& test,
                          int64_t steps, uint64_t seed, const TrainHooks& hooks);

// For chrome://tracing and ui.perfetto.dev: a row for each row of the profile, the counters "memory" (bytes by purpose)
// and, in f16, "loss scale". `facts` stand in the file beside the events. Times are in microseconds.
// (Google, "Trace Event Format".)
std::string trace_file(const StepProfile& steps, const Json& facts);

// The step of median length, as a row of a record has it under "step" (bench/results/README.md): seconds, lanes and
// purposes. Null if there is none.
Json typical_step(const StepProfile& steps);

}  // namespace hs::bench::measure
