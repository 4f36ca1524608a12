// Measures the memory of training steps, for `profile memory`.
#pragma once

#include "bench/measure/experiment.h"
#include "bench/measure/observers/memory_recorder.h"

namespace hs::bench::measure {

struct MeasuredStep {
  CheckpointPlan plan;
  int64_t peak = 0;  // of the steps, bytes
  BytesByPurpose at_peak{}, peak_by_purpose{};
  BytesByPurpose after{};   // live after a step, including its batches
  double milliseconds = 0;  // median
  std::string weights_sha256;
  BytesByPurpose live_at_start{};  // live before `events`, which are those of one step
  std::vector<MemoryEvent> events;
};

// Trains the experiment, with its seed, for one untimed and `steps` timed steps, cycling through the samples; each step
// runs all its micro-batches. Throws Error (usage) if no segments are possible.
MeasuredStep measure_step(const Experiment& what, const SampleSource& samples, const CheckpointChoice& choice,
                          int64_t steps);

// The largest batch found, up to `most`, whose step with these segments has a peak of at most `budget`; each candidate
// is checked by running a step. `known` is where the search starts. 0: none.
int64_t largest_batch(const Experiment& what, const MeasuredStep& known, const std::vector<Segment>& segments,
                      const SampleSource& samples, int64_t budget, int64_t most);

// A step of `micro_batches` batches compared with a step of one batch of the same total size; medians in milliseconds.
struct AccumulationCost {
  int64_t micro_batches, batch;
  double accumulated_ms, one_batch_ms;
};
AccumulationCost measure_accumulation(const Experiment& what, const SampleSource& samples, int64_t micro_batches,
                                      int64_t repeats);

}  // namespace hs::bench::measure
