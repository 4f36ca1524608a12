// OneStep: a model with everything that its training step (models/training/train_step.h) needs, to run that step
// repeatedly. For `profile` and its kind.
#pragma once

#include <memory>

#include "bench/measure/experiment.h"
#include "data/io/sample_source.h"
#include "engine/ambient.h"
#include "models/training/train_step.h"

namespace hs::bench::measure {

class OneStep {
 public:
  // The experiment's model of its seed for the data set, and its step, with a constant rate.
  OneStep(const Experiment& experiment, const SampleInfo& set);

  // The first run chooses the segments to recompute, from its first batch. on_phase: called after each phase (see
  // StepPhases). Throws Error (bad_input) if a budget is too small.
  StepSeconds run(const std::vector<Batch>& micro_batches, const std::function<void(const char* phase)>& on_phase = {});

  Tensor forward(const Batch& batch);  // the batch's loss, with its tape

  double loss() const { return loss_.item(); }  // of the last micro-batch of the last step
  double loss_scale() const { return scaler_.scale(); }
  int64_t parameters() { return model_->parameter_count(); }
  ParameterArena& arena() { return arena_; }

 private:
  const AmbientScope scope_;
  std::unique_ptr<StagedModel> model_;
  ParameterArena arena_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  std::optional<CheckpointPlan> plan_;
  std::function<void(const Tensor& images, const Tensor& labels)> before_first_;
  const Experiment config_;
  std::optional<TrainStep> step_;
  Tensor loss_;
};

// The next `count` batches, for a step.
std::vector<Batch> next_batches(BatchSource& source, int64_t count);

}  // namespace hs::bench::measure
