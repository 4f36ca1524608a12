#include "bench/measure/one_step.h"

#include <utility>

namespace hs::bench::measure {

OneStep::OneStep(const std::string& model, int64_t blocks, const SampleInfo& set, Precision precision, Device device,
                 const CheckpointChoice& checkpoint)
    : model_(make_model(model, 1, sizes_for(set, blocks))),
      arena_(*model_, device),
      optimizer_(make_optimizer(arena_, {})),
      scaler_({.enabled = precision == Precision::f16}, device) {
  ambient().training = true;
  ambient().seed = 1;
  ambient().step = optimizer_->step_counter();
  TrainHooks hooks;
  hooks.before_first_step = checkpointer(checkpoint, *model_, plan_);
  hooks.on_phase = [this](const char* phase, const Tensor& loss) {
    if (on_phase_) on_phase_(phase, loss);
  };
  const TrainConfig config{
      .optimizer = {}, .device = device, .precision = precision, .scaler = {}, .sum = {}, .augment = {}};
  step_.emplace(*model_, arena_, *optimizer_, scaler_, set.scale, config, hooks);
}

void OneStep::run(const std::vector<Batch>& micro_batches,
                  std::function<void(const char* phase, const Tensor& loss)> on_phase) {
  on_phase_ = std::move(on_phase);
  StepSeconds seconds;
  loss_ = step_->run(micro_batches, seconds).back();
}

}  // namespace hs::bench::measure
