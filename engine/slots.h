// Slots of the kernels that the engine and the loader call. An op declares its own slots, in kernels/; these belong to
// no op, and engine/ and data/ do not depend on kernels/. The folder named above each slot implements it.
#pragma once

#include "engine/grad_scaler.h"
#include "engine/kernel.h"
#include "engine/schedule.h"
#include "engine/tensor.h"

namespace hs {

// kernels/accumulate/: y += x.
struct Accumulate {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<Accumulate> accumulate{"accumulate"};

// kernels/cast/: y = x, rounded to the nearest value of y's type.
struct CastForward {
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<CastForward> cast_forward{"cast_forward"};

// kernels/gather_samples/: out[i] = set[samples[i]], a batch from a set that is on the device. set (count, H, W, C) u8,
// samples (N) i32, out (N, H, W, C) u8. REQUIRES: every sample is in 0 .. count-1
struct GatherSamples {
  const Tensor& set;
  const Tensor& samples;
  Tensor& out;
  auto tensors() const { return tensor_list(set, samples, out); }
};
constinit inline Kernel<GatherSamples> gather_samples{"gather_samples"};

// ---- the optimizer's, in kernels/optimizer_steps/ ----
// step, rates and scaler are the state of Optimizer and GradScaler; other tensors are (size), f32.

struct SgdRule {  // momentum, weight_decay and nesterov, as in engine/optim.h
  float momentum, weight_decay;
  bool nesterov = false;
};
struct AdamRule {  // beta1, beta2, epsilon and weight_decay, as in engine/optim.h
  float beta1, beta2, epsilon, weight_decay;
  bool decoupled;  // AdamW: the weight is multiplied by 1 - lr*wd; otherwise wd*w is added to the gradient
};
struct LarsRule {  // momentum, weight_decay and trust, as in engine/optim.h
  float momentum, weight_decay, trust;
};
struct LambRule {  // beta1, beta2, epsilon and weight_decay, as in engine/optim.h
  float beta1, beta2, epsilon, weight_decay;
};

// Inputs of an update, on the device; begin_step writes them.
enum StepRate : int {
  rate_learning,       // learning rate of this step, schedule included
  rate_correction1,    // 1 / (1 - beta1^t), computed in double
  rate_correction2,    // 1 / (1 - beta2^t)
  rate_gradient,       // factor on every gradient: 1 / scale, times the clipping factor
  rate_skip,           // not 0: leave everything unchanged
  rate_base_learning,  // learning rate before the schedule: input of begin_step
  step_rates,
};
struct StepRule {  // beta1, beta2, clip and schedule of the optimizer, and the scaler's settings
  float beta1, beta2, clip;
  Schedule schedule;
  GradScalerConfig scaler;
  float outlier = 0, loss_outlier = 0;  // a norm or loss that is so many times the usual one is skipped; 0: none is

  HS_HOST_DEVICE bool has_outliers() const { return outlier > 0 || loss_outlier > 0; }  // see BeginStep::usual
};

// What BeginStep remembers of the steps that were taken, if any are outliers.
enum Usual : int {
  usual_norm,   // mean of their gradient norms; later ones count for more
  usual_loss,   // the same of their losses
  usual_count,  // how many there were
  usual_size,
};

// share = scale * weight, f32 scalars.
struct ScaleLoss {
  const Tensor& scale;
  float weight;
  Tensor& share;
  auto tensors() const { return tensor_list(scale, share); }
};
constinit inline Kernel<ScaleLoss> scale_loss{"scale_loss"};

// measured[0] = sum of (gradient / scale)^2, measured[1] = number of non-finite elements (0 if none, else positive).
struct MeasureGradients {
  const Tensor& gradient;
  const Tensor& scaler;  // GradScaler::state(), (3)
  Tensor& measured;
  auto tensors() const { return tensor_list(gradient, scaler, measured); }
};
constinit inline Kernel<MeasureGradients> measure_gradients{"measure_gradients"};

// Where the steps of a recorded group leave what the host reads later: losses[e] and scales[e], e = entry + step, are
// the step's loss and the loss scale after it.
struct StepLog {
  const Tensor& entry = no_tensor();  // i32 scalar, on the device because a graph replays with the same host values
  int64_t step = 0;                   // of the group
  Tensor& losses = no_tensor();       // f32; undefined: nothing is logged
  Tensor& scales = no_tensor();       // f32; undefined without loss scaling
};

// Decides whether and how to step, from `measured`; with `gradient` it measures that first, as measure_gradients does.
struct BeginStep {
  const StepRule& rule;  // the settings of the optimizer
  Tensor& measured;      // undefined: every gradient is fine
  Tensor& scaler;        // GradScaler::state(), (3)
  Tensor& step;
  Tensor& rates;  // (step_rates), see StepRate
  const Tensor& gradient = no_tensor();
  const Tensor& loss = no_tensor();  // of the step, f32 scalar; needed for `log`, and if rule.loss_outlier > 0
  Tensor& usual = no_tensor();       // (usual_size), needed if rule.has_outliers()
  const StepLog log = {};            // default: none
  auto tensors() const {
    return tensor_list(gradient, measured, scaler, step, rates, loss, usual, log.entry, log.losses, log.scales);
  }
};
constinit inline Kernel<BeginStep> begin_step{"begin_step"};

// average += (1 - d) * (value - average), d = min(decay, (1 + step) / (10 + step)), unless the step was skipped.
struct AverageStep {
  const Tensor& value;
  const Tensor& rates;  // (step_rates), see StepRate
  const Tensor& step;   // of the optimizer, this one included
  float decay;
  Tensor& average;
  auto tensors() const { return tensor_list(value, rates, step, average); }
};
constinit inline Kernel<AverageStep> average_step{"average_step"};

// value += momentum * (sum / micro_batches - value), unless the step was skipped.
struct FoldStatistics {
  const Tensor& sum;    // of what the micro-batches of the step have measured
  const Tensor& rates;  // (step_rates), see StepRate
  float momentum;
  int64_t micro_batches;
  Tensor& value;
  auto tensors() const { return tensor_list(sum, rates, value); }
};
constinit inline Kernel<FoldStatistics> fold_statistics{"fold_statistics"};

struct SgdStep {  // w, v and g of engine/optim.h are value, velocity and gradient; see rule and rates
  const Tensor& gradient;
  const SgdRule& rule;
  const Tensor& rates;
  Tensor& velocity;
  Tensor& value;
  Tensor& cast = no_tensor();         // value in f16 or bf16
  const Tensor& decay = no_tensor();  // weight decay of each granule (ParameterArena::granule); undefined: the rule's
  auto tensors() const { return tensor_list(gradient, rates, decay, velocity, value, cast); }
};
constinit inline Kernel<SgdStep> sgd_step{"sgd_step"};

struct AdamStep {  // w, m, v and g of engine/optim.h are value, mean, square and gradient; see rule and rates
  const Tensor& gradient;
  const AdamRule& rule;
  const Tensor& rates;
  Tensor& mean;
  Tensor& square;
  Tensor& value;
  Tensor& cast = no_tensor();         // value in f16 or bf16
  const Tensor& decay = no_tensor();  // as in SgdStep
  auto tensors() const { return tensor_list(gradient, rates, decay, mean, square, value, cast); }
};
constinit inline Kernel<AdamStep> adam_step{"adam_step"};

// Optimizers whose rate depends on the norms of each parameter tensor. parts (count, 3) i32: begin and end of a tensor
// in the arena, and whether it is adapted and decays (not 0) or neither.
struct LarsStep {  // w, v and g of engine/optim.h are value, velocity and gradient; see rule and rates
  const Tensor& gradient;
  const LarsRule& rule;
  const Tensor& rates;
  const Tensor& parts;
  Tensor& velocity;
  Tensor& value;
  auto tensors() const { return tensor_list(gradient, rates, parts, velocity, value); }
};
constinit inline Kernel<LarsStep> lars_step{"lars_step"};

struct LambStep {  // w, m, v and g are value, mean, square and gradient; rule, rates and parts as in LarsStep
  const Tensor& gradient;
  const LambRule& rule;
  const Tensor& rates;
  const Tensor& parts;
  Tensor& mean;
  Tensor& square;
  Tensor& value;
  auto tensors() const { return tensor_list(gradient, rates, parts, mean, square, value); }
};
constinit inline Kernel<LambStep> lamb_step{"lamb_step"};

}  // namespace hs
