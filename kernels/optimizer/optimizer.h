// Optimizers, and the scaling of the loss: SGD with momentum, Adam, AdamW, LARS, LAMB, Muon, schedule-free AdamW. A
// step is one fused kernel over the parameter arena. Values that change from step to step (the number of steps, the
// learning rate) are on the device, because a captured step replays with the same host values. Formulas follow
// PyTorch's, so that runs can be compared:
//   SGD    g += wd*w;  v = momentum*v + g;  w -= lr*v;  Nesterov: w -= lr*(g + momentum*v)
//          (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013)
//   Adam   g += wd*w;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;  w -= lr * (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)
//          (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015)
//   AdamW  w *= 1 - lr*wd first, and no wd*w in g (Loshchilov and Hutter, "Decoupled weight decay", ICLR 2019)
//   LARS   v = momentum*v + lr*ratio*(g + wd*w);  w -= v;  ratio = trust*|w| / (|g| + wd*|w|)
//          (You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017)
//   LAMB   m and v as Adam;  u = (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps) + wd*w;  w -= lr*ratio*u;  ratio = |w| / |u|
//          (You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020, with bias
//          correction and the identity as phi)
//   Muon   v = momentum*v + (1-momentum)*g;  u = momentum*v + (1-momentum)*g;  w *= 1 - lr*wd;
//          w -= lr * sqrt(max(1, out/in)) * O,  O = u with all singular values near 1: five times
//          X <- a*X + b*(X X')*X + c*(X X')^2*X, from X = u / |u| (Keller Jordan et al., "Muon: an optimizer for hidden
//          layers in neural networks", 2024), in f32, where torch.optim.Muon's products are bf16. This is for matrices
//          of hidden layers, convolutions as (in*k*k, out); vectors, embeddings and the last layer (ParameterRole)
//          are trained by AdamW with lr * vector_rate.
//   schedule-free   of AdamW (Defazio et al., "The road less scheduled", NeurIPS 2024). Gradients are taken at w,
//          which is between z, which they move, and the average x of all z, where the model is tested and saved:
//          v as Adam;  u = g / (sqrt(v/(1-b2^t)) + eps) + wd*w;  z -= lr*u;  x += c * (z - x);  w = (1-b1)*z + b1*x;
//          c = f^2 / (sum of f^2 so far), f the warm-up's factor on lr. There is no other schedule. x is not kept, but
//          follows from w and z. Statistics (batch norm's) are of w.
// LARS and LAMB take the norms of each parameter tensor. A ratio is 1 if a norm in it is 0, and for biases and norms,
// which do not decay there either.
// Adam's defaults are PyTorch's. Others differ: momentum 0.9 (PyTorch: 0), AdamW's weight decay 0 (PyTorch: 0.01).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/module.h"
#include "kernels/optimizer/schedule.h"

namespace hs {

// Which optimizer, and its settings.
struct OptimizerConfig {
  std::string name = "adam";                            // sgd, nesterov, adam, adamw, lars, lamb, muon or schedule-free
  float learning_rate = 1e-3f;                          // before the schedule's factor
  float momentum = 0.9f;                                // sgd, nesterov, lars and muon
  float trust = 1e-3f;                                  // lars
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;  // b1, b2 and eps above
  float vector_rate = 0.1f;                             // muon: see above
  float weight_decay = 0;                               // wd above
  bool decay_vectors = true;                            // false: biases and norms do not decay
  // Limit on the global gradient norm; 0: none. Gradients with a larger norm are multiplied by clip / norm (PyTorch: by
  // clip / (norm + 1e-6)).
  float clip = 0;
  // Leave out a step whose global gradient norm, or loss, is more than this many times the mean of earlier ones; 0:
  // none.
  float outlier = 0, loss_outlier = 0;
  // Keeps a moving average of the weights, which forgets by this factor in each step (less in the first ones); 0: none
  // (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).
  float average_decay = 0;
  float statistics_momentum = 0.1f;  // the weight of a step's mean in statistics (Module::add_statistic); PyTorch's
  Schedule schedule = {};            // of the learning rate
};

// Dynamic loss scaling for f16, where gradients below 6e-8 become zero: the loss, and with it every gradient, is
// multiplied by a large scale, which the optimizer divides out again in f32. If a gradient overflows, the step is
// skipped and the scale halved; after a while without overflow it is doubled. (Micikevicius et al., "Mixed precision
// training", ICLR 2018; the rule and its constants are those of PyTorch's GradScaler.) All factors are powers of two,
// so multiplying and dividing by the scale is exact.
struct GradScalerConfig {
  bool enabled = false;            // false: the scale stays 1
  float initial = 65536;           // the scale of the first step
  float growth = 2;                // factor on the scale after growth_interval finite steps
  float backoff = 0.5f;            // factor on the scale after a step that was not finite
  float smallest = 1;              // lower bound of the scale
  float largest = 4294967296.0f;   // gradients that are all zero must not drive it to infinity
  int32_t growth_interval = 2000;  // finite steps before it grows
};

// The loss scale of one run; not thread safe. Its state is on the device, so no step waits for the host and a captured
// step can contain it. If disabled, the scale stays 1 and nothing else differs: skipped steps (clipping causes some
// too) are still counted.
class GradScaler {
 public:
  GradScaler(const GradScalerConfig& config, Device device);  // creates state() there; throws Error (usage)

  // dL/dL for a loss that is a fraction `weight` of the step (by samples): scale * weight, f32 scalar.
  Tensor loss_gradient(float weight);

  const GradScalerConfig& config() const { return config_; }  // the settings
  Tensor& state() { return state_; }  // (3) f32: the scale, finite steps since it last changed, steps skipped
  // These wait for the device.
  double scale() const { return state_.slice(0, {}).item(); }
  int64_t skipped() const { return static_cast<int64_t>(state_.slice(2, {}).item()); }  // number of steps so far

 private:
  GradScalerConfig config_;
  Tensor state_;
};

struct StepLog;

class Optimizer {  // updates the parameters of one arena; not thread safe
 public:
  Optimizer(ParameterArena& arena, const OptimizerConfig& config);  // see make_optimizer()
  virtual ~Optimizer() = default;

  // Updates every trained parameter from the gradients in the arena, in this order: divide out the scaler's scale,
  // check for inf, NaN and outliers, clip, update, average, advance count, schedule and scale; and folds into each
  // statistic s what was measured, s += statistics_momentum * (sum / micro_batches - s), where the sum is its
  // "gradient". If a gradient is not finite, or with clipping or outliers their norm is not (the sum of squares is f32:
  // beyond 1.8e19), nothing is updated, and of the last three only the scale advances; of an outlier nothing does. The
  // scaler counts the step as skipped. Without a scaler, clipping and outliers there is no check. Does not zero the
  // gradients; does not wait for the device. `loss`: the step's, an f32 scalar, if reads_loss(); one that is not finite
  // then counts as such a gradient. `micro_batches`: how many the gradients are of, on all ranks.
  void step(GradScaler& scaler, const Tensor& loss = {}, int64_t micro_batches = 1);
  void step();                                                          // with a scale of 1
  bool reads_loss() const { return config_.loss_outlier > 0 || log_; }  // for outliers of it, or to log it
  void zero_gradients() { arena_.zero_gradients(); }                    // as ParameterArena::zero_gradients()
  // These wait for the device.
  int64_t steps() const { return static_cast<int64_t>(step_.item()); }  // taken so far
  int64_t skipped() const { return no_scaling_.skipped(); }             // by step(); step(scaler) counts in the scaler
  const Tensor& step_counter() const { return step_; }                  // i32 scalar, for ambient().step
  // What later steps read of earlier ones, by name, besides the count: f32, sharing the optimizer's storage; laid out
  // as the arena, or as its trained parameters.
  std::map<std::string, Tensor> memory() const;
  const Tensor& usual() const { return usual_; }  // the same of norms and losses; undefined without outliers
  // What to test and to save in place of the weights: (size) f32, laid out as the arena; undefined: the weights.
  virtual Tensor average() const { return average_; }

  // While it is alive, steps log (kernels/optimizer/steps.h). Both must outlive it.
  class Logging : NonCopyable {
   public:
    // From now on.
    Logging(Optimizer& optimizer, const StepLog& log) : optimizer_(optimizer) { optimizer_.log_ = &log; }
    ~Logging() { optimizer_.log_ = nullptr; }

   private:
    Optimizer& optimizer_;
  };

  // For all later steps; multiplied by the schedule's factor. Not inside a captured step: it copies to the device.
  void set_learning_rate(float rate);

 protected:
  virtual void update(Tensor& casts) = 0;                     // of the values and, if defined, their 16-bit casts
  virtual std::map<std::string, Tensor> moments() const = 0;  // what memory() returns besides the average

  void fold(int64_t micro_batches);  // the statistics that rules have written to

  OptimizerConfig config_;        // the settings
  ParameterArena& arena_;         // where the parameters are
  Tensor values_, gradients_;     // of the arena's trained parameters
  Tensor step_;                   // i32 scalar
  Tensor rates_;                  // (step_rates) f32
  Tensor measured_;               // (2) f32
  Tensor decay_;                  // of each granule, undefined if it is the same for all
  Tensor average_;                // of config.average_decay
  Tensor usual_;                  // see usual()
  GradScaler no_scaling_;         // for step() without a scaler
  const StepLog* log_ = nullptr;  // see Logging
};

// While it is alive, the arena holds the optimizer's average of the weights, if it keeps one, in place of the weights.
class WithAverage : NonCopyable {
 public:
  WithAverage(ParameterArena& arena, const Optimizer& optimizer);  // arena and optimizer must outlive it
  ~WithAverage();

 private:
  ParameterArena& arena_;
  Tensor weights_;  // undefined if there is no average
};

// Throws Error (usage) unless the name is one of OptimizerConfig's and its numbers make sense: none is negative, and
// momentum, betas and average_decay are less than 1. The arena must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config);

}  // namespace hs
