// RankStep: a training step whose micro-batches' gradients meet in a tree, in this process or among ranks
// (models/training/gradient_sum.h). The losses of all ranks are exchanged behind backward, and what rank 0 decides with
// them. RankRunner: what runs such steps, recorded or not.
#pragma once

#include <optional>
#include <vector>

#include "models/training/captured_step.h"
#include "models/training/gradient_sum.h"
#include "models/training/step_runner.h"

namespace hs {

// A rank's part of a step; in one process, it is all of it.
struct StepShare {
  std::vector<int64_t> sizes;  // samples of each micro-batch of the step, on all ranks
  int64_t first = 0;           // the first micro-batch of this rank
  bool time_is_up = false;     // whether this rank wants no step after it
};

class RankStep : public TrainStep {  // of one run; not thread safe
 public:
  // What `parts` refers to must outlive it. REQUIRES: its config.sum has a tree or an exchange
  explicit RankStep(const RunParts& parts);

  // On every rank the same sizes. Sends what the others have to know before the step.
  void announce(const StepShare& share);
  // As TrainStep::run(), with this rank's micro-batches, but throws Interrupted on every rank in the same step.
  const std::vector<Tensor>& run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) override;
  void wait_for_all();                // before a recorded one is replayed; throws Interrupted if a rank is
  bool finish(StepSeconds& seconds);  // after it; returns whether rank 0 wants no other
  // Throws Error (rank) if a rank's weights are not those of rank 0, and Interrupted.
  void compare_weights(const Position& at) const;

 private:
  void exchange_losses();
  void throw_if_interrupted() const;

  GradientSum sum_;
  Exchange* const exchange_;
  RankSums* const sums_;
  StepShare share_;
  Tensor shared_;                        // among ranks: the loss of each micro-batch of the step
  std::vector<float> flags_from_ranks_;  // among ranks: StepShare::time_is_up of rank 0, how many ranks are interrupted
};

class RankRunner : public StepRunner {  // of one run; not thread safe
 public:
  // As StepRunner. Throws Error (usage) if ranks cannot run what is configured.
  explicit RankRunner(const RunParts& parts);

  // As StepRunner, with this rank's micro-batches. The first time, and when an epoch ends, the weights are compared.
  NextStep next(const Position& at, TrainResult& result) override;
  void run(const NextStep& next, Losses& losses, StepSeconds& seconds) override;
  void end_epoch(const Position& at) override { ranks_.compare_weights(at); }
  bool time_is_up(double seconds) const override;  // rank 0's clock decides, a step later

 private:
  RankStep& ranks_;  // the step
  std::optional<CapturedStep> captured_;
  StepShare share_;
  bool has_begun_ = false;   // and compared the weights
  bool time_is_up_ = false;  // says rank 0
};

}  // namespace hs
