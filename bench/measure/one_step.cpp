#include "bench/measure/one_step.h"

#include <utility>

#include "models/step_phases.h"

namespace hs::bench::measure {

OneStep::OneStep(const std::string& model, int64_t blocks, const SampleInfo& set, Precision precision, Device device,
                 const CheckpointChoice& checkpoint)
    : model_(make_model(model, 1, sizes_for(set, blocks))),
      arena_(*model_, device),
      optimizer_(make_optimizer(arena_, {})),
      scaler_({.enabled = precision == Precision::f16}, device),
      before_first_(checkpointer(checkpoint, *model_, plan_)),
      config_{.optimizer = {}, .device = device, .precision = precision, .scaler = {}, .sum = {}, .augment = {}},
      scale_(set.scale) {
  ambient().training = true;
  ambient().seed = 1;
  ambient().step = optimizer_->step_counter();
  step_.emplace(*model_, arena_, *optimizer_, scaler_, set.scale, config_);
}

void OneStep::run(const std::vector<Batch>& micro_batches, const std::function<void(const char* phase)>& on_phase) {
  std::vector<Batch> inputs;
  for (const Batch& batch : micro_batches) inputs.push_back(on_device(batch, config_.device));
  if (before_first_) {
    const Autocast amp(config_.precision, arena_);
    const auto [input, labels] = prepare(model_->input_kind(), inputs.at(0), scale_);
    std::exchange(before_first_, nullptr)(input, labels);
  }
  std::optional<StepPhases> phases;
  if (on_phase) {
    phases.emplace([&](const char*, const char* ended) {
      if (ended) on_phase(ended);
    });
  }
  StepSeconds seconds;
  loss_ = step_->run(inputs, seconds).back();
  if (on_phase) on_phase("update");
}

Tensor OneStep::forward(const Batch& batch) {
  const Autocast amp(config_.precision, arena_);
  return step_->forward(on_device(batch, config_.device));
}

}  // namespace hs::bench::measure
