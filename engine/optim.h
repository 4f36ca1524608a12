// Optimizers: SGD with momentum, Adam, AdamW. A step is one fused kernel over the parameter arena.
// Formulas and defaults follow PyTorch's, so that runs can be compared:
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
  explicit Optimizer(ParameterArena& arena, const OptimizerConfig& config) : config(config), arena_(arena) {}
  virtual ~Optimizer() = default;

  // Updates every parameter from the gradients in the arena; does not zero them.
  virtual void step() = 0;
  void zero_gradients() { arena_.zero_gradients(); }
  int64_t steps() const { return steps_; }

  OptimizerConfig config;  // the learning rate may change between steps

 protected:
  ParameterArena& arena_;
  int64_t steps_ = 0;  // steps taken: t of the formulas
};

// Throws Error (usage) for a name that is not sgd, adam or adamw. The arena must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config);

struct SgdStep {
  float learning_rate, momentum, weight_decay;
};
struct AdamStep {
  float learning_rate, beta1, beta2, epsilon;
  float weight_decay;   // into the gradient (Adam)
  float weight_shrink;  // factor on the weight first: 1 - lr*wd (AdamW), else 1
  float correction1;    // 1 / (1 - beta1^t), computed in double
  float correction2;    // 1 / (1 - beta2^t)
};
// All tensors (size), f32. kernels/optimizer_steps.* implement them.
constinit inline Kernel<void(const Tensor& gradient, const SgdStep&, Tensor& velocity, Tensor& value)> sgd_step{
    "sgd_step"};
constinit inline Kernel<void(const Tensor& gradient, const AdamStep&, Tensor& mean, Tensor& square, Tensor& value)>
    adam_step{"adam_step"};

}  // namespace hs
