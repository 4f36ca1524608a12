#include "engine/optim.h"

#include <cmath>

#include "engine/check.h"

namespace hs {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), velocity_(Tensor::zeros(arena.values.shape(), DType::f32, arena.values.device())) {}

  void step() override {
    ++steps_;
    sgd_step(arena_.gradients, {config.learning_rate, config.momentum, config.weight_decay}, velocity_, arena_.values);
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

  void step() override {
    ++steps_;
    const double t = static_cast<double>(steps_);
    AdamStep s{};
    s.learning_rate = config.learning_rate;
    s.beta1 = config.beta1;
    s.beta2 = config.beta2;
    s.epsilon = config.epsilon;
    s.weight_decay = decoupled_ ? 0 : config.weight_decay;
    s.weight_shrink = decoupled_ ? 1 - config.learning_rate * config.weight_decay : 1;
    s.correction1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(config.beta1), t)));
    s.correction2 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(config.beta2), t)));
    adam_step(arena_.gradients, s, mean_, square_, arena_.values);
  }

 private:
  bool decoupled_;
  Tensor mean_, square_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config) {
  if (config.name == "sgd") return std::make_unique<Sgd>(arena, config);
  if (config.name == "adam") return std::make_unique<Adam>(arena, config, false);
  if (config.name == "adamw") return std::make_unique<Adam>(arena, config, true);
  fail(ExitCode::usage, "--optimizer {}: expected sgd, adam or adamw", config.name);
}

}  // namespace hs
