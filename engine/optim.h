// Optimizers: SGD with momentum, Adam, AdamW. A step is one fused kernel over the parameter arena.
// What changes from step to step (the number of steps, the learning rate) lives on the device, because a captured step
// replays with the same host values. Formulas and defaults follow PyTorch's, so that runs can be compared:
//   SGD    g += wd*w;  v = momentum*v + g;  w -= lr*v
//   Adam   g += wd*w;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;  w -= lr * (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)
//          (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015)
//   AdamW  w *= 1 - lr*wd first, and no wd*w in g (Loshchilov and Hutter, "Decoupled weight decay", ICLR 2019)
#pragma once

#include <memory>
#include <string_view>

#include "engine/kernel.h"
#include "engine/module.h"

namespace hs {

struct OptimizerConfig {
  std::string_view name = "adam";  // sgd, adam or adamw
  float learning_rate = 1e-3f;
  float momentum = 0.9f;  // sgd only
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float weight_decay = 0;
};

class Optimizer {
 public:
  Optimizer(ParameterArena& arena, const OptimizerConfig& config);
  virtual ~Optimizer() = default;

  // Updates every parameter from the gradients in the arena; does not zero them.
  void step();
  void zero_gradients() { arena_.zero_gradients(); }
  int64_t steps() const { return static_cast<int64_t>(step_.item()); }  // taken so far; waits for the device
  const Tensor& step_counter() const { return step_; }                  // i32 scalar, for ambient().step

  // Of the steps from now on. Not inside a captured step: one copy to the device.
  void set_learning_rate(float rate);

 protected:
  virtual void update() = 0;

  OptimizerConfig config_;
  ParameterArena& arena_;
  Tensor step_;   // i32 scalar
  Tensor rates_;  // (3) f32: learning rate, 1 / (1 - beta1^t), 1 / (1 - beta2^t)
};

// Throws Error (usage) for a name that is not sgd, adam or adamw. The arena must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config);

struct SgdRule {
  float momentum, weight_decay;
};
struct AdamRule {
  float beta1, beta2, epsilon, weight_decay;
  bool decoupled;  // AdamW: the weight shrinks by 1 - lr*wd; else wd*w is added to the gradient
};
// kernels/optimizer_steps.* implement them. `rates` and `step` are those of Optimizer, other tensors are (size), f32.
// t = step + 1 becomes the step, and rates[1], rates[2] the corrections for it, computed in double.
constinit inline Kernel<void(float beta1, float beta2, Tensor& step, Tensor& rates)> begin_step{"begin_step"};
constinit inline Kernel<void(const Tensor& gradient, const SgdRule&, const Tensor& rates, Tensor& velocity,
                             Tensor& value)>
    sgd_step{"sgd_step"};
constinit inline Kernel<void(const Tensor& gradient, const AdamRule&, const Tensor& rates, Tensor& mean, Tensor& square,
                             Tensor& value)>
    adam_step{"adam_step"};

}  // namespace hs
