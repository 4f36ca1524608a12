// Training steps whose memory is looked at: what `memory` puts side by side.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/experiment.h"
#include "bench/measure/observers/memory_recorder.h"

namespace hs::bench::measure {

struct StepCase {
  std::string model;
  int64_t blocks = default_blocks;
  int64_t batch = 64, accumulate = 1;
  Precision precision = Precision::f32;
  Device device = Device::cpu;
  uint64_t seed = 1;
};

struct MeasuredStep {
  std::optional<CheckpointPlan> plan;  // none where the segments were given
  int64_t peak = 0;                    // of the steps, bytes
  BytesByPurpose at_peak{}, peak_by_purpose{};
  BytesByPurpose after{};   // live when a step has ended, its batches included
  double milliseconds = 0;  // median
  std::string weights_sha256;
  BytesByPurpose live_at_start{};  // of the events: those of one step
  std::vector<MemoryEvent> events;
};

// Either what to do with the costs, or segments that are known.
using Choose = std::function<std::vector<Segment>(const StepCosts& costs)>;

// Trains for one step that is not timed and `steps` that are, with Adam, on the set's samples over and over; each step
// has all its micro-batches. Throws Error (usage) where no segments are possible.
MeasuredStep measure_step(const StepCase& what, const SampleSource& digits, const Choose& choose, int64_t steps);
// The same for one step, with these segments, and only its peak.
int64_t peak_of_step(const StepCase& what, const SampleSource& digits, const std::vector<Segment>& segments);

// The largest batch, up to `most`, whose step with these segments has a peak of at most `budget`, from one whose peak
// is known; checked by a step with it. 0: none.
int64_t largest_batch(const StepCase& what, const MeasuredStep& known, const std::vector<Segment>& segments,
                      const SampleSource& digits, int64_t budget, int64_t most);

// A step of `micro_batches` batches against one with a batch as large as all of them; medians, milliseconds.
struct AccumulationCost {
  int64_t micro_batches, batch;
  double accumulated_ms, one_batch_ms;
};
AccumulationCost measure_accumulation(const StepCase& what, const SampleSource& digits, int64_t micro_batches,
                                      int64_t repeats);

}  // namespace hs::bench::measure
