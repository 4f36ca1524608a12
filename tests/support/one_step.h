// A model and everything that its training step needs, on the CPU, with synthetic digits: for programs that count what
// one step does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/synthetic.h"
#include "engine/ambient.h"
#include "models/models.h"
#include "models/training/train_step.h"

namespace hs::test {

// At most one at a time: it sets this thread's ambient values.
class OneStep {
 public:
  OneStep(const std::string& model, const TrainConfig& config, int64_t samples)
      : config_(config),
        model_(make_model(model, config.seed)),
        arena_(*model_),
        optimizer_(make_optimizer(arena_, config.optimizer)),
        scaler_(config.scaler, config.device),
        step_(*model_, arena_, *optimizer_, scaler_, {.mean = 0.1307f, .deviation = 0.3081f}, config_) {
    ambient().fuse = config.fuse;
    ambient().seed = config.seed;
    ambient().step = optimizer_->step_counter();
    const MemorySource source = synthetic_digits(synthetic_train_seed, samples);
    const int64_t side = synthetic_side;
    batches_ = {{Tensor::from(source.images(), {samples, side, side, 1}), Tensor::from(source.labels(), {samples})}};
  }

  void run() { step_.run(batches_, seconds_); }

 private:
  const AmbientScope scope_;
  const TrainConfig config_;
  const std::unique_ptr<StagedModel> model_;
  ParameterArena arena_;
  const std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  TrainStep step_;
  std::vector<Batch> batches_;
  StepSeconds seconds_;
};

}  // namespace hs::test
