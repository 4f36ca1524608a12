// --memory BYTES: chooses the micro-batch, the segments that are recomputed and, if it may, the type of a training step
// together, so that the peak is within the bytes and the predicted time is least. The samples of a step stay as asked
// for: batch x accumulate.
#pragma once

#include "bench/measure/experiment.h"

namespace hs::bench::measure {

// What a step with micro-batches of one size and in one type costs.
struct MicroBatch {
  int64_t batch = 0, accumulate = 0;         // samples, and how many make a step
  Precision precision = Precision::f32;      // of its products
  StepCosts costs;                           // of one of them
  int64_t constant = 0;                      // bytes of `costs.fixed` that do not depend on the batch
  int64_t left_over = 0;                     // bytes that the first step adds to `fixed`: the sums of a tree
  int64_t other_peak = 0;                    // of a run with the fewest bytes: of its evaluation, if that has the peak
  bool batch_norm = false, dropout = false;  // whether the model has these, which depend on the micro-batch

  int64_t least() const;  // the smallest budget within which it runs, bytes
  int64_t kept() const;   // within which it runs with everything kept, bytes
  // The segments with the least time whose peak, of a whole run, is at most `budget`. REQUIRES: budget >= least()
  CheckpointPlan within(int64_t budget) const;
  double milliseconds(double extra = 0) const;  // of forward and backward of a step, `extra` in each micro-batch
};

struct MemoryPlan {
  MicroBatch chosen;
  CheckpointPlan checkpoint;  // its segments; predicted.peak is that of the whole run
  double more_time = 0;       // of 1, over the fastest considered, of no smaller micro-batch, with everything kept
  std::vector<MicroBatch> considered;  // that were measured, in this order
};

// What may be chosen.
struct MemoryChoice {
  int64_t batch, accumulate;          // as asked for
  std::vector<Precision> precisions;  // the first as without a budget
};

using MeasureMicroBatch = std::function<MicroBatch(int64_t batch, Precision precision)>;

// Measures the smallest micro-batch, then each time the largest that by the measurements so far fits, down to one that
// fits with everything kept: smaller ones, which do the same work in more parts, are taken to be no faster.
// Keeps the micro-batch of a model with batch norm, unless it fits in no way. Throws Error (usage) that names the
// smallest budget.
MemoryPlan choose_within(int64_t budget, const MemoryChoice& choice, const MeasureMicroBatch& measure);

}  // namespace hs::bench::measure
