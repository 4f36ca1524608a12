#include "kernels/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/observe.h"
#include "engine/slots.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

Tensor trained(const ParameterArena& arena, const Tensor& all) {
  return all.slice(arena.statistics_size(), {all.size() - arena.statistics_size()});
}

Tensor zeros_like(const Tensor& x) { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }

class Sgd : public Optimizer {
 public:
  Sgd(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), velocity_(zeros_like(values_)) {}

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"velocity", velocity_}}; }
  void update(Tensor& casts) override {
    const SgdRule rule{config_.momentum, config_.weight_decay, config_.name == "nesterov"};
    sgd_step({gradients_, rule, rates_, velocity_, values_, casts, decay_});
  }

 private:
  Tensor velocity_;
};

class Adam : public Optimizer {
 public:
  Adam(ParameterArena& arena, const OptimizerConfig& config, bool decoupled)
      : Optimizer(arena, config), decoupled_(decoupled), mean_(zeros_like(values_)), square_(zeros_like(values_)) {}

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"mean", mean_}, {"square", square_}}; }
  void update(Tensor& casts) override {
    const AdamRule rule{config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay, decoupled_};
    adam_step({gradients_, rule, rates_, mean_, square_, values_, casts, decay_});
  }

 private:
  bool decoupled_;
  Tensor mean_, square_;
};

// Where each trained parameter lies among them, as LarsStep reads it.
Tensor parts_of(const ParameterArena& arena) {
  std::vector<int32_t> parts;
  for (const NamedParameter& parameter : arena.parameters()) {
    if (parameter.is_statistic) continue;
    const auto begin = static_cast<int32_t>(arena.offset(parameter) - arena.statistics_size());
    parts.insert(parts.end(),
                 {begin, begin + static_cast<int32_t>(parameter.value->size()), !is_vector(parameter.role)});
  }
  return Tensor::from(parts, {static_cast<int64_t>(parts.size()) / 3, 3}).to(arena.values.device());
}

class Lars : public Optimizer {
 public:
  Lars(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), parts_(parts_of(arena)), velocity_(zeros_like(values_)) {}

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"velocity", velocity_}}; }
  void update(Tensor& casts) override {
    const LarsRule rule{config_.momentum, config_.weight_decay, config_.trust};
    lars_step({gradients_, rule, rates_, parts_, velocity_, values_});
    if (casts.defined()) cast_forward({values_, casts});
  }

 private:
  Tensor parts_, velocity_;
};

class Lamb : public Optimizer {
 public:
  Lamb(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), parts_(parts_of(arena)), mean_(zeros_like(values_)), square_(zeros_like(values_)) {}

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"mean", mean_}, {"square", square_}}; }
  void update(Tensor& casts) override {
    const LambRule rule{config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay};
    lamb_step({gradients_, rule, rates_, parts_, mean_, square_, values_});
    if (casts.defined()) cast_forward({values_, casts});
  }

 private:
  Tensor parts_, mean_, square_;
};

// Muon for the matrices of hidden layers, AdamW for what lies between them in the arena.
class Muon : public Optimizer {
 public:
  Muon(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), mean_(zeros_like(values_)), square_(zeros_like(values_)) {
    int64_t most = 0, max_short = 0;
    for (const NamedParameter& parameter : arena.parameters()) {
      if (parameter.is_statistic) continue;
      const Shape& shape = parameter.value->shape();
      const int64_t begin = arena.offset(parameter) - arena.statistics_size(), size = shape.size();
      if (parameter.role == ParameterRole::matrix && size > 0) {
        const int64_t out = shape[shape.rank() - 1], shorter = std::min(size / out, out);
        matrices_.push_back({begin, {size / out, out}});
        most = std::max(most, size), max_short = std::max(max_short, shorter);
      } else {
        constexpr int64_t granule = ParameterArena::granule;
        if (others_.empty() || others_.back().end != begin) others_.push_back({begin, begin});
        others_.back().end += (size + granule - 1) / granule * granule;
      }
    }
    check(!matrices_.empty(), "optimizer muon: no hidden layer has a matrix that is trained; use adamw");
    for (Tensor* x : {&x_, &next_}) *x = Tensor::zeros({most}, DType::f32, values_.device());
    for (Tensor* x : {&gram_, &factor_}) *x = Tensor::zeros({max_short * max_short}, DType::f32, values_.device());
  }

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"mean", mean_}, {"square", square_}}; }
  void update(Tensor& casts) override {
    for (const Matrix& matrix : matrices_) step_of(matrix);
    const AdamRule rule{config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay, true, config_.vector_rate};
    for (const Range& range : others_) {
      const auto part = [&](const Tensor& all) { return all.slice(range.begin, {range.end - range.begin}); };
      Tensor mean = part(mean_), square = part(square_), value = part(values_);
      constexpr int64_t granule = ParameterArena::granule;
      const Tensor decay =
          !decay_.defined() ? Tensor() : decay_.slice(range.begin / granule, {(range.end - range.begin) / granule});
      adam_step({part(gradients_), rule, rates_, mean, square, value, no_tensor(), decay});
    }
    if (casts.defined()) cast_forward({values_, casts});
  }

 private:
  struct Matrix {
    int64_t begin;
    Shape shape;  // (IN, OUT)
  };
  struct Range {
    int64_t begin, end;
  };

  void step_of(const Matrix& matrix) {
    const auto part = [&](const Tensor& all) { return all.slice(matrix.begin, matrix.shape); };
    Tensor velocity = part(mean_), value = part(values_), x = x_.slice(0, matrix.shape);
    const auto in = static_cast<float>(matrix.shape[0]), out = static_cast<float>(matrix.shape[1]);
    muon_direction({part(gradients_), config_.momentum, rates_, velocity, x});
    muon_update({orthogonal(x), std::sqrt(std::max(1.0f, out / in)), config_.weight_decay, rates_, value});
  }

  // x, its norm 1, with singular values near 1 in place of its own: a few Newton-Schulz steps
  // X <- a X + b (X X') X + c (X X')^2 X, on the shorter side.
  Tensor orthogonal(Tensor x) {
    const bool wide = x.shape()[0] <= x.shape()[1];
    const int64_t M = std::min(x.shape()[0], x.shape()[1]);
    Tensor next = next_.slice(0, x.shape()), gram = gram_.slice(0, {M, M}), factor = factor_.slice(0, {M, M});
    for (int i = 0; i < muon_iterations; ++i, std::swap(x, next)) {
      matmul_into(x, x, {.transpose_a = !wide, .transpose_b = wide}, gram);
      matmul_into(gram, gram, {}, factor);
      muon_factor({gram, factor});
      matmul_into(wide ? factor : x, wide ? x : factor, {}, next);
    }
    return x;
  }

  std::vector<Matrix> matrices_;
  std::vector<Range> others_;
  Tensor mean_, square_;             // of matrices the velocity, and nothing; of others Adam's moments
  Tensor x_, next_, gram_, factor_;  // scratch memory for the largest matrix
};

class ScheduleFree : public Optimizer {
 public:
  ScheduleFree(ParameterArena& arena, const OptimizerConfig& config)
      : Optimizer(arena, config), fast_(values_.clone()), square_(zeros_like(values_)) {
    check(config.schedule.kind == ScheduleKind::constant,
          "optimizer schedule-free: the learning rate has a schedule, expected constant, or a warm-up alone");
    check(config.average_decay == 0, "optimizer schedule-free: keeps an average itself, expected no other (--ema)");
    check(config.beta1 > 0, "optimizer schedule-free: beta1 is 0, expected more; the average follows from it");
  }
  Tensor average() const override {
    Tensor all = arena_.values.clone(), part = trained(arena_, all);
    part.copy_from(add(scale(values_, 1 / config_.beta1), scale(fast_, 1 - 1 / config_.beta1)));
    return all;
  }

 protected:
  std::map<std::string, Tensor> moments() const override { return {{"fast", fast_}, {"square", square_}}; }
  void update(Tensor& casts) override {
    const AdamRule rule{config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay, true};
    schedule_free_step(
        {gradients_, rule, config_.schedule.warmup_steps, step_, rates_, fast_, square_, values_, casts, decay_});
  }

 private:
  Tensor fast_, square_;  // z and v
};

// The weight decay of each granule of the trained parameters: none where a bias or a norm lies.
Tensor decay_of(const ParameterArena& arena, float weight_decay) {
  const int64_t size = arena.values.size() - arena.statistics_size();
  std::vector<float> decay(static_cast<size_t>(size / ParameterArena::granule), weight_decay);
  for (const NamedParameter& parameter : arena.parameters()) {
    if (parameter.is_statistic || !is_vector(parameter.role)) continue;
    const int64_t begin = arena.offset(parameter) - arena.statistics_size(), end = begin + parameter.value->size();
    for (int64_t i = begin; i < end; i += ParameterArena::granule) {
      decay[static_cast<size_t>(i / ParameterArena::granule)] = 0;
    }
  }
  return Tensor::from(decay, {static_cast<int64_t>(decay.size())}).to(arena.values.device());
}

}  // namespace

GradScaler::GradScaler(const GradScalerConfig& config, Device device) : config_(config) {
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  check(config.smallest > 0 && config.smallest <= config.initial && config.initial <= config.largest,
        "loss scale: initial is {}, expected {} to {}, and those to be more than 0", config.initial, config.smallest,
        config.largest);
  check(config.growth >= 1 && config.backoff > 0 && config.backoff <= 1 && config.growth_interval >= 1,
        "loss scale: growth is {}, backoff {} and growth_interval {}, expected 1 or more, up to 1, and 1 or more",
        config.growth, config.backoff, config.growth_interval);
  state_ = Tensor::from(std::vector<float>{config.enabled ? config.initial : 1, 0, 0}, {3}).to(device);
}

Tensor GradScaler::loss_gradient(float weight) {
  Tensor scale = state_.slice(0, {});
  if (weight == 1) return scale;
  const MemoryPurposeScope purpose(MemoryPurpose::gradients);
  Tensor share = scale.empty_like();
  scale_loss({scale, weight, share});
  return share;
}

Optimizer::Optimizer(ParameterArena& arena, const OptimizerConfig& config)
    : config_(config),
      arena_(arena),
      values_(trained(arena, arena.values)),
      gradients_(trained(arena, arena.gradients())),
      step_(Tensor::zeros({}, DType::i32, arena.values.device())),
      rates_(Tensor::zeros({step_rates}, DType::f32, arena.values.device())),
      measured_(Tensor::zeros({2}, DType::f32, arena.values.device())),
      no_scaling_({}, arena.values.device()) {
  set_learning_rate(config.learning_rate);
  if (config.weight_decay != 0 && !config.decay_vectors) decay_ = decay_of(arena, config.weight_decay);
  if (config.outlier > 0 || config.loss_outlier > 0) {
    usual_ = Tensor::zeros({usual_size}, DType::f32, arena.values.device());
  }
  if (config.average_decay > 0) {
    average_ = arena.values.empty_like();
    average_.copy_from(arena.values);
  }
}

std::map<std::string, Tensor> Optimizer::memory() const {
  std::map<std::string, Tensor> all = moments();
  if (average_.defined()) all["average"] = average_;
  return all;
}

WithAverage::WithAverage(ParameterArena& arena, const Optimizer& optimizer) : arena_(arena) {
  const Tensor average = optimizer.average();
  if (!average.defined()) return;
  weights_ = arena.values.clone();
  arena.values.copy_from(average);
}

WithAverage::~WithAverage() {
  if (weights_.defined()) arena_.values.copy_from(weights_);
}

void Optimizer::set_learning_rate(float rate) {
  rates_.slice(rate_base_learning, {1}).copy_from(Tensor::from(std::vector<float>{rate}, {1}));
}

void Optimizer::fold(int64_t micro_batches) {
  int64_t begin = 0, end = 0;  // of neighbours that were written to: one call for all
  const auto fold_neighbours = [&] {
    if (begin == end) return;
    const Tensor sum = arena_.gradients().slice(begin, {end - begin});
    Tensor value = arena_.values.slice(begin, {end - begin});
    arena_.update([&](Tensor&) { fold_statistics({sum, rates_, config_.statistics_momentum, micro_batches, value}); });
  };
  constexpr int64_t granule = ParameterArena::granule;
  for (const NamedParameter& one : arena_.parameters()) {
    if (!one.is_statistic) break;  // they come first
    if (one.value->grad_info()->writes == 0) continue;
    const int64_t at = arena_.offset(one);
    if (at != end) fold_neighbours(), begin = at;
    end = at + (one.value->size() + granule - 1) / granule * granule;
  }
  fold_neighbours();
}

void Optimizer::step() { step(no_scaling_); }

void Optimizer::step(GradScaler& scaler, const Tensor& loss, int64_t micro_batches) {
  check(!reads_loss() || loss.defined(), "optimizer: outliers of the loss, but step() was not given one");
  const Op op("optimizer");
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  const StepRule rule{config_.beta1,   config_.beta2,   config_.clip,        config_.schedule,
                      scaler.config(), config_.outlier, config_.loss_outlier};
  arena_.gradients();  // fills in zeros where nothing was written
  Tensor& measured = scaler.config().enabled || config_.clip > 0 || config_.outlier > 0 ? measured_ : no_tensor();
  const Tensor& gradient = measured.defined() ? gradients_ : no_tensor();
  begin_step({rule, measured, scaler.state(), step_, rates_, gradient, loss, usual_, log_ ? *log_ : StepLog()});
  arena_.update([this](Tensor& casts) { update(casts); });
  if (values_.size() < arena_.values.size()) fold(micro_batches);
  if (average_.defined()) average_step({arena_.values, rates_, step_, config_.average_decay, average_});
}

namespace {

// With others a run would not fail, but train to other weights.
void check_settings(const OptimizerConfig& c) {
  const auto not_negative = [](auto... values) { return ((values >= 0) && ...); };
  check(
      not_negative(c.momentum, c.beta1, c.beta2, c.average_decay, c.statistics_momentum) &&
          std::max({c.momentum, c.beta1, c.beta2, c.average_decay}) < 1 && c.statistics_momentum <= 1,
      "optimizer: momentum is {}, beta1 {}, beta2 {}, average_decay {} and statistics_momentum {}, expected 0 or more, "
      "and less than 1, the last up to 1",
      c.momentum, c.beta1, c.beta2, c.average_decay, c.statistics_momentum);
  check(not_negative(c.learning_rate, c.trust, c.epsilon, c.vector_rate, c.weight_decay),
        "optimizer: learning_rate is {}, trust {}, epsilon {}, vector_rate {} and weight_decay {}, expected 0 or more",
        c.learning_rate, c.trust, c.epsilon, c.vector_rate, c.weight_decay);
  check(not_negative(c.clip, c.outlier, c.loss_outlier),
        "optimizer: clip is {}, outlier {} and loss_outlier {}, expected 0 or more", c.clip, c.outlier, c.loss_outlier);
  check(c.schedule.every >= 1, "schedule: every is {} steps, expected 1 or more", c.schedule.every);
  check(not_negative(c.schedule.warmup_steps, c.schedule.factor),
        "schedule: warmup_steps is {} and factor {}, expected 0 or more", c.schedule.warmup_steps, c.schedule.factor);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(ParameterArena& arena, const OptimizerConfig& config) {
  const MemoryPurposeScope purpose(MemoryPurpose::optimizer);
  check_settings(config);
  if (config.name == "sgd" || config.name == "nesterov") return std::make_unique<Sgd>(arena, config);
  if (config.name == "adam") return std::make_unique<Adam>(arena, config, false);
  if (config.name == "adamw") return std::make_unique<Adam>(arena, config, true);
  if (config.name == "lars") return std::make_unique<Lars>(arena, config);
  if (config.name == "lamb") return std::make_unique<Lamb>(arena, config);
  if (config.name == "muon") return std::make_unique<Muon>(arena, config);
  if (config.name == "schedule-free") return std::make_unique<ScheduleFree>(arena, config);
  fail(ExitCode::usage, "optimizer {}: expected sgd, nesterov, adam, adamw, lars, lamb, muon or schedule-free",
       config.name);
}

}  // namespace hs
