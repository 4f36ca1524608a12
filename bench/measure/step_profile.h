// Profiles a few steps of an experiment, for the file that `train --trace` writes and for the timelines of reports.
#pragma once

#include "bench/cli/json_file.h"
#include "bench/measure/experiment.h"
#include "bench/measure/observers/profiler.h"
#include "engine/ranks/exchange.h"

namespace hs::bench::measure {

struct StepProfile {
  Profile profile;                 // of the steps only, without evaluation
  std::vector<float> loss_scales;  // after each step; f16 only
  std::vector<SumTimes> sums;      // over ranks
};

// Trains a throwaway model for two epochs of `steps` steps, on the first samples of the source, and profiles the
// second: by then caches are filled and a graph is captured. With ranks, every rank must call it. Throws what
// run_experiment throws.
StepProfile profile_steps(const Experiment& experiment, const SampleSource& train, const SampleSource& test,
                          int64_t steps, const TrainHooks& hooks);

// At most `most` of the samples: if there are more, the largest of each of `most` equal groups.
std::vector<MemorySample> thinned(std::vector<MemorySample> samples, size_t most);

Json to_json(const MemoryCounts& counts);  // of a record's call, and of a span's in a trace

// One process of a trace.
struct TraceProcess {
  int64_t id = 1;
  std::string name = "halfstep";
  double start = 0;  // seconds, at which its profile begins in the trace
};

// The events of one process for chrome://tracing and ui.perfetto.dev: a track per row of the profile, the counters
// "memory" (bytes by purpose) and, in f16, "loss scale", and each sum over ranks, from when it was posted until it was
// finished: as many may be in progress as there are buckets. Times are in microseconds. (Google, "Trace Event Format".)
std::string trace_events(const StepProfile& steps, const TraceProcess& process = {});
// The file: the events of all processes. `facts` are stored next to them. dropped: spans, of all processes
std::string trace_file(const std::vector<std::string>& processes, size_t dropped, const Json& facts);

// The step of median length, in the form of a row's member "step" (bench/results/README.md): seconds, lanes and
// purposes. Null if there are no steps.
Json typical_step(const StepProfile& steps);

}  // namespace hs::bench::measure
