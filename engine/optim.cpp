#include "engine/optim.h"

#include "engine/check.h"
#include "engine/observe.h"
#include "engine/slots.h"

namespace hs {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), velocity_(Tensor::zeros(arena.values.shape(), DType::f32, arena.values.device())) {}

  std::map<std::string, Tensor> memory() const override { return {{"velocity", velocity_}}; }

 protected:
  void update(Tensor& casts) override {
    sgd_step({arena_.gradients(), {config_.momentum, config_.weight_decay}, rates_, velocity_, arena_.values, casts});
  }

 private:
  Tensor velocity_;
};

class Adam : public Optimizer {
 public:
  Adam(ParameterArena& arena, const OptimizerConfig& config, bool decoupled)
      : Optimizer(arena, config),
        decoupled_(decoupled),
        mean_(Tensor::zeros(arena.values.shape(), DType::f32, arena.values.device())),
        square_(Tensor::zeros(arena.values.shape(), DType::f32, arena.values.device())) {}

  std::map<std::string, Tensor> memory() const override { return {{"mean", mean_}, {"square", square_}}; }

 protected:
  void update(Tensor& casts) override {
    const AdamRule rule{config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay, decoupled_};
    adam_step({arena_.gradients(), rule, rates_, mean_, square_, arena_.values, casts});
  }

 private:
  bool decoupled_;
  Tensor mean_, square_;
};

}  // namespace

Optimizer::Optimizer(ParameterArena& arena, const OptimizerConfig& config)
    : config_(config),
      arena_(arena),
      step_(Tensor::zeros({}, DType::i32, arena.values.device())),
      rates_(Tensor::zeros({step_rates}, DType::f32, arena.values.device())),
      no_scaling_({}, arena.values.device()) {
  set_learning_rate(config.learning_rate);
}

void Optimizer::set_learning_rate(float rate) {
  rates_.slice(rate_base_learning, {1}).copy_from(Tensor::from(std::vector<float>{rate}, {1}));
}

void Optimizer::step() { step(no_scaling_); }

void Optimizer::step(GradScaler& scaler) {
  const Op op("optimizer");
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  const bool measures = scaler.config().enabled || config_.clip > 0;
  if (measures && !measured_.defined()) {
    const PoolScope shared(nullptr);  // it is kept, so it must not take a block that a captured step will ask for
    measured_ = Tensor::empty({2}, DType::f32, step_.device());
  }
  const StepRule rule{config_.beta1, config_.beta2, config_.clip, config_.schedule, scaler.config()};
  begin_step({rule, measures ? measured_ : no_tensor(), scaler.state(), step_, rates_,
              measures ? arena_.gradients() : no_tensor()});
  arena_.update([this](Tensor& casts) { update(casts); });
}

std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config) {
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  if (config.name == "sgd") return std::make_unique<Sgd>(arena, config);
  if (config.name == "adam") return std::make_unique<Adam>(arena, config, false);
  if (config.name == "adamw") return std::make_unique<Adam>(arena, config, true);
  fail(ExitCode::usage, "optimizer {}: expected sgd, adam or adamw", config.name);
}

}  // namespace hs
