#include "bench/measure/one_step.h"

#include <utility>

#include "models/training/step_phases.h"

namespace hs::bench::measure {

std::vector<Batch> next_batches(BatchSource& source, int64_t count) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < count; ++i) batches.push_back(source.next());
  return batches;
}

OneStep::OneStep(const Experiment& experiment, const SampleInfo& set)
    : model_(make_model(experiment.model, experiment.seed, sizes_for(set, experiment.blocks))),
      arena_(*model_, experiment.device),
      optimizer_(make_optimizer(arena_, experiment.optimizer)),
      scaler_({.enabled = experiment.precision == Precision::f16}, experiment.device),
      before_first_(checkpointer(experiment, *model_, plan_)),
      config_(experiment) {
  ambient().training = true;
  ambient().fuse = experiment.fuse;
  ambient().seed = experiment.seed;
  ambient().step = optimizer_->step_counter();
  step_.emplace(*model_, arena_, *optimizer_, scaler_, set.scale, config_);
}

StepSeconds OneStep::run(const std::vector<Batch>& micro_batches,
                         const std::function<void(const char* phase)>& on_phase) {
  std::vector<Batch> inputs;
  for (const Batch& batch : micro_batches) inputs.push_back(on_device(batch, config_.device));
  if (before_first_) {
    const Autocast precision(config_.precision, arena_);
    const auto [input, labels] = step_->input_of(inputs.at(0));
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
  return seconds;
}

Tensor OneStep::forward(const Batch& batch) {
  const Autocast precision(config_.precision, arena_);
  return step_->forward(on_device(batch, config_.device));
}

}  // namespace hs::bench::measure
