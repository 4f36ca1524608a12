// StepRunner: gets the batches of a run's next step and runs it: as it is (models/training/train_step.h), as this
// rank's part of one (models/training/rank_step.h), or as a CUDA graph, which may be of several steps
// (models/training/captured_step.h).
#pragma once

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "models/training/captured_step.h"
#include "models/training/rank_step.h"
#include "models/training/step_phases.h"
#include "models/training/training_run.h"

namespace hs {

// What runs next: a step, or several in one graph.
struct NextStep {
  std::vector<Batch> batches;  // this process's micro-batches, on the device; none if the graph gathers them itself
  StepShare share;             // and those of all ranks
  int64_t steps = 1;           // of a graph

  int64_t samples() const { return std::reduce(share.sizes.begin(), share.sizes.end()); }
  Batch last_batch() const { return batches.empty() ? Batch{} : batches.back(); }
};

class StepRunner {  // of one run; not thread safe
 public:
  // All arguments must outlive it. Throws Error (usage) if there can be no graph of several steps.
  StepRunner(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler, BatchSource& training,
             const TrainConfig& config, const TrainHooks& hooks);

  // What comes after this place. Throws Interrupted, as run() does.
  NextStep next(const Position& at, TrainResult& result);
  // Adds the losses of its micro-batches, and the loss scale.
  void run(const NextStep& next, Losses& losses, StepSeconds& seconds);

  const TrainStep& step() const { return *step_; }  // the one that is run, recorded or not
  // Whether it has taken config.max_seconds. Of ranks, rank 0's clock decides, a step later.
  bool time_is_up(double seconds) const;
  // See RankStep; alone: nothing.
  void compare_ranks(const Position& at) const { step_->compare_weights(at.epoch, at.step); }

 private:
  bool fits_group(const Position& at) const;
  void run_group(const NextStep& next, Losses& losses, StepSeconds& seconds);
  void show_first_batch(const Batch& batch);

  ParameterArena& arena_;
  GradScaler& scaler_;
  BatchSource& training_;
  const TrainConfig& config_;
  const TrainHooks& hooks_;
  const ResidentSet* const set_;
  std::unique_ptr<TrainStep> step_;
  std::optional<CapturedStep> captured_;
  std::optional<StepPhases> phases_;  // if a hook looks into a step
  bool has_shown_ = false;            // a batch to before_first_step
  bool time_is_up_ = false;           // says rank 0
};

}  // namespace hs
