// The optimizer's slots, and the beginning of its step, the same code on both devices: decides whether the step is
// taken and at which rate, and updates the loss scale.
#pragma once

#include <cmath>
#include <limits>

#include "engine/autograd.h"
#include "engine/host_device.h"
#include "engine/kernel.h"
#include "kernels/optimizer/optimizer.h"

namespace hs {

// step, rates and scaler are the state of Optimizer and GradScaler; other tensors are (size), f32.

struct SgdRule {  // momentum, weight_decay and nesterov, as in kernels/optimizer/optimizer.h
  float momentum, weight_decay;
  bool nesterov = false;
};
struct AdamRule {  // beta1, beta2, epsilon and weight_decay, as in kernels/optimizer/optimizer.h
  float beta1, beta2, epsilon, weight_decay;
  bool decoupled;  // AdamW: the weight is multiplied by 1 - lr*wd; otherwise wd*w is added to the gradient
  float rate = 1;  // factor on the learning rate: 1, or Muon's vector_rate
};
struct LarsRule {  // momentum, weight_decay and trust, as in kernels/optimizer/optimizer.h
  float momentum, weight_decay, trust;
};
struct LambRule {  // beta1, beta2, epsilon and weight_decay, as in kernels/optimizer/optimizer.h
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
  Tensor& usual = no_tensor();       // (usual_size); undefined: nothing is an outlier
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

struct SgdStep {  // w, v and g of kernels/optimizer/optimizer.h are value, velocity and gradient; see rule and rates
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

struct AdamStep {  // w, m, v and g of kernels/optimizer/optimizer.h are value, mean, square and gradient
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

struct ScheduleFreeStep {  // w, z, v and g of kernels/optimizer/optimizer.h are value, fast, square and gradient
  const Tensor& gradient;
  const AdamRule& rule;
  int32_t warmup_steps;  // of the schedule
  const Tensor& step;    // of the optimizer, this one included
  const Tensor& rates;
  Tensor& fast;
  Tensor& square;
  Tensor& value;
  Tensor& cast = no_tensor();         // value in f16 or bf16
  const Tensor& decay = no_tensor();  // as in SgdStep
  auto tensors() const { return tensor_list(gradient, step, rates, decay, fast, square, value, cast); }
};
constinit inline Kernel<ScheduleFreeStep> schedule_free_step{"schedule_free_step"};

// Optimizers whose rate depends on the norms of each parameter tensor. parts (count, 3) i32: begin and end of a tensor
// in the arena, and whether it is adapted and decays (not 0) or neither.
struct LarsStep {  // w, v and g of kernels/optimizer/optimizer.h are value, velocity and gradient; see rule and rates
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

// The parts of Muon's step that are no products, of one matrix. Of a skipped step the direction is 0.
inline constexpr int muon_iterations = 5;
inline constexpr float muon_a = 3.4445f, muon_b = -4.7750f, muon_c = 2.0315f;  // Keller Jordan's: see optimizer.h
inline constexpr float muon_smallest = 1e-7f;  // what a norm is at least, where something is divided by it

// velocity += (1 - momentum) * (g - velocity); direction = g + momentum * (velocity - g), divided by its norm.
struct MuonDirection {
  const Tensor& gradient;
  float momentum;
  const Tensor& rates;
  Tensor& velocity;
  Tensor& direction;
  auto tensors() const { return tensor_list(gradient, rates, velocity, direction); }
};
constinit inline Kernel<MuonDirection> muon_direction{"muon_direction"};

// square = a I + b gram + c square, where square is gram gram: what an iteration multiplies the matrix by.
struct MuonFactor {
  const Tensor& gram;  // (M, M)
  Tensor& square;      // (M, M)
  auto tensors() const { return tensor_list(gram, square); }
};
constinit inline Kernel<MuonFactor> muon_factor{"muon_factor"};

// value = value * (1 - lr*weight_decay) - lr * rate * direction
struct MuonUpdate {
  const Tensor& direction;
  float rate, weight_decay;
  const Tensor& rates;
  Tensor& value;
  auto tensors() const { return tensor_list(direction, rates, value); }
};
constinit inline Kernel<MuonUpdate> muon_update{"muon_update"};

// The formulas of the fused updates, the same on both devices, bit for bit. After begin() has read the rates of the
// step, an update is called for each parameter w, with its weight decay, its gradient and what is kept beside it.
struct SgdUpdate {
  SgdRule rule;
  float learning_rate = 0, factor = 0;
  HS_HOST_DEVICE void begin(const float* rates) { learning_rate = rates[rate_learning], factor = rates[rate_gradient]; }
  HS_HOST_DEVICE void operator()(float weight_decay, float g, float& w, float& v) const {
    g = g * factor + weight_decay * w;
    v = rule.momentum * v + g;
    w -= learning_rate * (rule.nesterov ? g + rule.momentum * v : v);
  }
};

struct AdamUpdate {
  AdamRule rule;
  float learning_rate = 0, factor = 0, correction1 = 0, correction2 = 0;
  HS_HOST_DEVICE void begin(const float* rates) {
    learning_rate = rates[rate_learning] * rule.rate, factor = rates[rate_gradient];  // rate: 1 except in Muon
    correction1 = rates[rate_correction1], correction2 = rates[rate_correction2];
  }
  HS_HOST_DEVICE void operator()(float weight_decay, float g, float& w, float& m, float& v) const {
    const float shrink = rule.decoupled ? 1 - learning_rate * weight_decay : 1;
    g = g * factor + (rule.decoupled ? 0 : weight_decay) * w;
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    w = w * shrink - learning_rate * (m * correction1) / (sqrtf(v * correction2) + rule.epsilon);
  }
};

// The share of step t, from 1, in the sum of f^2 so far: f rises linearly in the warm-up, then it is 1.
HS_HOST_DEVICE inline float schedule_free_share(int32_t warmup_steps, int32_t step) {
  const auto t = static_cast<float>(step), warmup = static_cast<float>(warmup_steps);
  if (step <= warmup_steps) return 6 * t / ((t + 1) * (2 * t + 1));
  return 1 / (warmup * (2 * warmup + 1) / (6 * (warmup + 1)) + (t - warmup));
}

struct ScheduleFreeUpdate {
  AdamRule rule;
  int32_t warmup_steps;
  const int32_t* step;
  float learning_rate = 0, factor = 0, correction = 0, share = 0, length = 0;  // share: of this step in the average
  HS_HOST_DEVICE void begin(const float* rates) {
    learning_rate = rates[rate_learning], factor = rates[rate_gradient];
    correction = rates[rate_correction2];
    share = schedule_free_share(warmup_steps, *step);
    length = learning_rate * (1 - rule.beta1 * (1 - share));
  }
  HS_HOST_DEVICE void operator()(float weight_decay, float g, float& w, float& z, float& v) const {
    g = g * factor;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    const float u = g / (sqrtf(v * correction) + rule.epsilon) + weight_decay * w;
    w += share * (z - w) - length * u;
    z -= learning_rate * u;
  }
};

// sin(pi * x) for |x| <= 1/2, to 1e-7: Taylor's series. The library's sine would do, but uses local memory on a GPU.
HS_HOST_DEVICE constexpr float sine_of_half_turns(float x) {
  const float angle = 3.14159265f * x, square = angle * angle;
  return angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110)))));
}

// From `start` to `end` along half a cosine, as x goes from 0 to 1.
HS_HOST_DEVICE inline float along_cosine(float start, float end, float x) {
  return end + (start - end) * 0.5f * (1 + sine_of_half_turns(0.5f - fminf(x, 1.0f)));
}

// x^n by repeated squaring: the same bits on every device, which powf of different libraries are not. REQUIRES: n >= 0
HS_HOST_DEVICE constexpr float whole_power(float x, int32_t n) {
  float power = 1;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) power *= x;
  }
  return power;
}

HS_HOST_DEVICE inline float one_cycle_factor(int32_t total_steps, int32_t step) {  // see ScheduleKind::one_cycle
  constexpr float first = 1.0f / 25, last = first / 1e4f;
  const float top = 0.3f * static_cast<float>(total_steps) - 1, now = static_cast<float>(step);
  if (now <= top) return along_cosine(first, 1, top > 0 ? now / top : 1.0f);
  // Of one to three steps the top is before the first.
  return along_cosine(1, last, (now - top) / (static_cast<float>(total_steps) - 1 - top));
}

HS_HOST_DEVICE inline float curve_after_warmup(const Schedule& schedule, int32_t step) {  // not for `constant`
  if (schedule.kind == ScheduleKind::step) return whole_power(schedule.factor, step / schedule.every);
  if (schedule.kind == ScheduleKind::one_cycle) return one_cycle_factor(schedule.total_steps, step);
  const int32_t length = schedule.total_steps - schedule.warmup_steps;
  const float progress =
      length > 0 ? fminf(static_cast<float>(step - schedule.warmup_steps) / static_cast<float>(length), 1.0f) : 1.0f;
  if (schedule.kind == ScheduleKind::linear) return 1 - progress;
  if (schedule.kind == ScheduleKind::exponential) return powf(schedule.factor, progress);
  return 0.5f * (1 + sine_of_half_turns(0.5f - progress));
}

// The factor on the learning rate in the step after `step` steps have been taken.
HS_HOST_DEVICE inline float schedule_factor(const Schedule& schedule, int32_t step) {
  if (step < schedule.warmup_steps) return static_cast<float>(step + 1) / static_cast<float>(schedule.warmup_steps + 1);
  return schedule.kind == ScheduleKind::constant ? 1 : curve_after_warmup(schedule, step);
}

// A step's update of the scale and of the steps since it last changed (GradScaler::state()), on either device.
HS_HOST_DEVICE inline void update_scale(const GradScalerConfig& config, bool finite, float* state) {
  if (!finite) {
    state[0] = state[0] * config.backoff < config.smallest ? config.smallest : state[0] * config.backoff;
    state[1] = 0;
    return;
  }
  state[1] += 1;
  if (state[1] < static_cast<float>(config.growth_interval)) return;
  state[0] = state[0] * config.growth > config.largest ? config.largest : state[0] * config.growth;
  state[1] = 0;
}

// The weight of the average so far: smaller in the first steps, so that it forgets where training began.
HS_HOST_DEVICE inline float average_decay(float decay, int32_t step) {
  const float t = static_cast<float>(step);
  return fminf(decay, (1 + t) / (10 + t));
}

// Whether a step's norm or loss is unusually large; if neither is, both count from now on. The first ones only count.
HS_HOST_DEVICE inline bool is_outlier(const StepRule& rule, float norm, float loss, float* usual) {
  constexpr float first = 20, slowest = 0.02f;  // later ones count by 1/50 each
  if (usual[usual_count] >= first && ((rule.outlier > 0 && norm > rule.outlier * usual[usual_norm]) ||
                                      (rule.loss_outlier > 0 && loss > rule.loss_outlier * usual[usual_loss]))) {
    return true;
  }
  usual[usual_count] += 1;
  const float weight = fmaxf(1 / usual[usual_count], slowest);
  usual[usual_norm] += weight * (norm - usual[usual_norm]);
  usual[usual_loss] += weight * (loss - usual[usual_loss]);
  return false;
}

// What the beginning of a step reads and writes.
struct StepState {
  const float* measured;  // from measure_gradients; may be nullptr
  const float* loss;      // nullptr unless rule.loss_outlier > 0
  float* scaler;
  int32_t* step;
  float *rates, *usual;  // usual: nullptr if nothing is an outlier
};

inline StepState state_of(const BeginStep& call) {
  const auto place = [](Tensor& tensor) { return tensor.defined() ? tensor.mutable_data<float>() : nullptr; };
  return {place(call.measured), call.loss.defined() ? call.loss.data<float>() : nullptr,
          place(call.scaler),   call.step.mutable_data<int32_t>(),
          place(call.rates),    place(call.usual)};
}

// Where StepLog says.
struct LogState {
  const float *loss, *scale;
  float *losses = nullptr, *scales;  // losses: nullptr if nothing is logged
  const int32_t* entry;
  int64_t step;
};

inline LogState log_of(const BeginStep& call) {
  const StepLog& log = call.log;
  if (!log.losses.defined()) return {};
  return {call.loss.data<float>(),          call.scaler.data<float>(),
          log.losses.mutable_data<float>(), log.scales.defined() ? log.scales.mutable_data<float>() : nullptr,
          log.entry.data<int32_t>(),        log.step};
}

HS_HOST_DEVICE inline void log_step(const LogState& log) {
  if (log.losses == nullptr) return;
  const int64_t entry = *log.entry + log.step;
  log.losses[entry] = *log.loss;
  if (log.scales != nullptr) log.scales[entry] = *log.scale;
}

// The beginning of a step, on either device; see Optimizer::step.
HS_HOST_DEVICE inline void begin_step_on(const StepRule& rule, const StepState& state) {
  const auto [measured, loss, scaler, step, rates, usual] = state;
  constexpr float largest = std::numeric_limits<float>::max();
  const float norm = rule.clip > 0 || rule.outlier > 0 ? sqrtf(measured[0]) : 0;
  const float its_loss = rule.loss_outlier > 0 ? *loss : 0;
  const bool finite = (measured == nullptr || measured[1] == 0) && norm <= largest && its_loss <= largest;
  const bool is_unusual = finite && usual != nullptr && is_outlier(rule, norm, its_loss, usual);
  const bool skip = !finite || is_unusual;
  rates[rate_skip] = skip ? 1 : 0;
  scaler[2] += skip ? 1 : 0;
  if (!skip) {
    rates[rate_learning] = rates[rate_base_learning] * schedule_factor(rule.schedule, *step);
    const double t = ++*step;
    rates[rate_correction1] = static_cast<float>(1 / (1 - pow(static_cast<double>(rule.beta1), t)));
    rates[rate_correction2] = static_cast<float>(1 / (1 - pow(static_cast<double>(rule.beta2), t)));
    rates[rate_gradient] = 1 / scaler[0];  // exact: the scale is a power of two
    if (rule.clip > 0 && norm > rule.clip) rates[rate_gradient] *= rule.clip / norm;
  }
  if (rule.scaler.enabled && !is_unusual) update_scale(rule.scaler, finite, scaler);  // an outlier is not its fault
}

}  // namespace hs
