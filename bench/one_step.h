// The step that models/train_step.cpp takes, by hand, so that its phases and its kernels can be looked at one by one:
// for `explain` and `doctor`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/sample_source.h"
#include "engine/ambient.h"
#include "engine/autocast.h"
#include "engine/batch.h"
#include "engine/grad_scaler.h"
#include "engine/optim.h"
#include "models/checkpoint_plan.h"
#include "models/models.h"

namespace hs::bench {

class OneStep {
 public:
  // A model for the set's images, with Adam. `blocks`: see ModelSizes.
  OneStep(const std::string& model, int64_t blocks, const SampleInfo& set, Precision precision, Device device);

  struct Hooks {
    std::function<void()> phase_ended;                // after forward, backward and update
    std::function<void(const Tensor& loss)> on_loss;  // between forward and backward
  };
  // The segments that are computed again in backward, from now on. Throws Error (bad_input) if a budget is too small.
  // REQUIRES: the batch is on the device, as bytes; for run() too
  void set_checkpoint(const CheckpointChoice& choice, const Batch& batch);
  void run(const Batch& batch, const Hooks& hooks = {});

  double loss() const { return loss_.item(); }  // of the last step
  double loss_scale() const { return scaler_.scale(); }
  int64_t parameters() { return model_->parameter_count(); }

 private:
  const AmbientScope scope_;
  std::unique_ptr<StagedModel> model_;
  ParameterArena arena_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  const PixelScale scale_;
  const Precision precision_;
  Tensor loss_;
};

}  // namespace hs::bench
