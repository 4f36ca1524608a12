// RankStep: a training step whose micro-batches' gradients meet in a tree, in this process or among ranks
// (models/training/gradient_sum.h). The losses of all ranks are exchanged behind backward, and what rank 0 decides with
// them.
#pragma once

#include <functional>
#include <vector>

#include "models/training/gradient_sum.h"
#include "models/training/train_step.h"

namespace hs {

class RankStep : public TrainStep {  // of one run; not thread safe
 public:
  // As TrainStep. REQUIRES: config.sum has a tree or an exchange
  RankStep(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
           const PixelScale& pixel_scale, const TrainConfig& config, std::function<bool()> is_interrupted);

  // On every rank the same sizes. Sends what the others have to know before the step.
  void announce(const StepShare& share) override;
  // As TrainStep::run(), with this rank's micro-batches, but throws Interrupted on every rank in the same step.
  const std::vector<Tensor>& run(const std::vector<Batch>& micro_batches, StepSeconds& seconds) override;
  void wait_for_all() override;                // throws Interrupted if a rank is
  bool finish(StepSeconds& seconds) override;  // whether rank 0 wants no step after it
  // Throws Error (rank) if a rank's weights are not those of rank 0, and Interrupted.
  void compare_weights(int64_t epoch, int64_t step) const override;

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

}  // namespace hs
