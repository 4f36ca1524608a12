#include "bench/one_step.h"

#include <optional>

#include "bench/experiment.h"
#include "engine/autograd.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace hs::bench {

OneStep::OneStep(const std::string& model, int64_t blocks, const SampleInfo& set, Precision precision, Device device)
    : model_(make_model(model, 1, {set.rows, set.columns, set.channels, set.classes, blocks})),
      arena_(*model_, device),
      optimizer_(make_optimizer(arena_, {})),
      scaler_({.enabled = precision == Precision::f16}, device),
      scale_(set.scale),
      precision_(precision) {
  ambient().training = true;
  ambient().seed = 1;
  ambient().step = optimizer_->step_counter();
}

void OneStep::set_checkpoint(const CheckpointChoice& choice, const Batch& batch) {
  const Autocast amp(precision_, arena_);
  std::optional<CheckpointPlan> plan;
  checkpointer(choice, *model_, plan)(normalize_image(batch.images, scale_), batch.labels);
}

void OneStep::run(const Batch& batch, const Hooks& hooks) {
  const auto phase_ended = [&] {
    if (hooks.phase_ended) hooks.phase_ended();
  };
  const Autocast amp(precision_, arena_);
  optimizer_->zero_gradients();
  const Tensor loss = softmax_cross_entropy(model_->forward(normalize_image(batch.images, scale_)), batch.labels);
  phase_ended();
  if (hooks.on_loss) hooks.on_loss(loss);
  backward(loss, scaler_.loss_gradient(1));
  phase_ended();
  optimizer_->step(scaler_);
  phase_ended();
  loss_ = loss.detach();
}

}  // namespace hs::bench
