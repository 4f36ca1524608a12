#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/cast/cast.h"
#include "models/layers.h"
#include "models/training/training_run.h"

#if __FINITE_MATH_ONLY__
#error "the search for NaN needs IEEE arithmetic: leave out -ffast-math and -ffinite-math-only"
#endif

namespace hs {
namespace {

constexpr int64_t max_steps = std::numeric_limits<int32_t>::max();  // that the device's counter holds
constexpr int64_t max_skipped = 20;                                 // in a row, once the scale is at its smallest

bool is_finite(const Tensor& tensor) {
  return std::ranges::all_of(tensor.to_vector<float>(), [](float value) { return std::isfinite(value); });
}

// The first stage of the model whose output is not finite; empty if there is none, or if the model has no stages.
std::string first_stage_not_finite(Module& model, Tensor images) {
  const auto* staged = dynamic_cast<const StagedModel*>(&model);
  if (!staged) return "";
  const NoGrad scope;
  for (const Stage& stage : staged->stages()) {
    images = stage.forward(images);
    if (!is_finite(images.dtype() == DType::f32 ? images : cast(images, DType::f32))) return stage.name;
  }
  return "";
}

// "conv1.weight, of layer conv1"
std::string with_layer(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : fmt::format("{}, of layer {}", parameter, parameter.substr(0, dot));
}

// Names the tensor with which a run's numbers went wrong, once it is known that they did: a parameter, because a single
// one spoils everything else; then the output of the model's first stage that computes one from these images, if they
// are given; then a gradient; otherwise "the loss". The losses are read later than they are computed, so more may have
// gone wrong since.
std::string first_not_finite(const ParameterArena& arena, Module& model, const Tensor& images) {
  for (const NamedParameter& parameter : model.parameters()) {  // in its order: statistics after what they depend on
    if (!is_finite(parameter.value->detach())) return with_layer(parameter.name);
  }
  const std::string stage = images.defined() ? first_stage_not_finite(model, images) : "";
  if (!stage.empty()) return "the output of layer " + stage;
  for (const NamedParameter& parameter : arena.parameters()) {
    const Tensor gradient = parameter.value->grad();
    if (gradient.defined() && !is_finite(gradient)) return "the gradient of " + with_layer(parameter.name);
  }
  return "the loss";
}

// A tensor of a state, the weights first; empty if all are finite.
std::string first_not_finite(const TrainingState& state, const ParameterArena& arena) {
  for (const NamedParameter& parameter : arena.parameters()) {
    if (!is_finite(state.tensors.at(parameter.name))) return parameter.name;
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.dtype() == DType::f32 && !is_finite(tensor)) return name;
  }
  return "";
}

}  // namespace

void check_run(Module& model, const ParameterArena& arena, const BatchSource& training, const BatchSource& test,
               const TrainConfig& config) {
  check(config.accumulate >= 1 && config.test_every >= 1,
        "train: accumulate is {} and test_every {}, expected 1 or more", config.accumulate, config.test_every);
  check(config.epochs >= 0 && config.patience >= 0 && config.max_seconds >= 0,
        "train: epochs is {}, patience {} and max_seconds {}, expected 0 or more", config.epochs, config.patience,
        config.max_seconds);
  check(config.patience == 0 || config.validation,
        "train: patience is {}, and there is no validation to go by; add one", config.patience);
  check(&training != &test && &training != config.validation,
        "train: a test or a validation of the training's own source would take batches from its epochs; make another "
        "Loader of these samples");
  for (const NamedParameter& parameter : model.parameters()) {
    check(parameter.is_frozen || std::ranges::count(arena.parameters(), parameter.value, &NamedParameter::value) == 1,
          "train: parameter {} of the model is not in this ParameterArena; make one of this model", parameter.name);
  }
}

OptimizerConfig optimizer_settings(const TrainConfig& config, const EpochSize& epoch) {
  if (config.epochs > max_steps / std::max<int64_t>(epoch.steps, 1)) {
    fail(ExitCode::usage,
         "{} epochs of {} steps are more than {} steps; train for fewer epochs, or with a larger batch", config.epochs,
         epoch.steps, max_steps);
  }
  OptimizerConfig optimizer = config.optimizer;
  optimizer.schedule.total_steps = static_cast<int32_t>(epoch.steps * config.epochs);
  return optimizer;
}

GradScalerConfig scaler_settings(const TrainConfig& config) {
  GradScalerConfig scaler = config.scaler;
  scaler.enabled = config.precision == Precision::f16;
  return scaler;
}

void NumberCheck::refuse(const std::string& what, const Batch& batch) const {
  const Autocast precision(config.precision, arena);
  const Tensor images = batch.images.defined() ? step.input_of(on_device(batch, config.device)).input : Tensor();
  fail(ExitCode::numeric, "{}; first tensor that is not finite: {}; try a smaller learning rate than {}", what,
       first_not_finite(arena, model, images), config.optimizer.learning_rate);
}

void NumberCheck::read_losses(const Position& at, const Batch& last) {
  if (const int64_t bad_batch = losses.read(); bad_batch > 0) {
    refuse(fmt::format("the loss became {} at step {} of epoch {}", std::isnan(losses.sum()) ? "nan" : "inf",
                       (bad_batch + config.accumulate - 1) / config.accumulate, at.epoch),
           last);
  }
  // Skipping is how a loss scale that is too large gets smaller. Once it cannot, nothing is learnt any more.
  const OptimizerConfig& rule = config.optimizer;
  const bool skips_outliers = rule.outlier > 0 || rule.loss_outlier > 0;
  if (!scaler.config().enabled && rule.clip <= 0 && !skips_outliers) return;
  if (const int64_t skipped = skips.look(scaler); skipped >= max_skipped) {
    refuse(fmt::format("{} steps in a row, up to step {} of epoch {}, were skipped because a gradient was not finite{}",
                       skipped, at.step, at.epoch, skips_outliers ? ", or the step an outlier" : ""),
           last);
  }
}

// An epoch's last update affects the loss of an evaluation first.
void NumberCheck::check_evaluation(const Evaluation& evaluation, const char* what, BatchSource& source,
                                   const Position& at) const {
  if (std::isfinite(evaluation.loss)) return;
  refuse(fmt::format("the {} loss became {} after step {} of epoch {}", what,
                     std::isnan(evaluation.loss) ? "nan" : "inf", at.step, at.epoch),
         config.sum.exchange ? Batch{} : source.next());
}

void NumberCheck::check_state(const TrainingState& state, const Position& at) const {
  if (const std::string bad = first_not_finite(state, arena); !bad.empty()) {
    fail(ExitCode::numeric, "after step {} of epoch {}, {} is not finite; try a smaller learning rate than {}", at.step,
         at.epoch, with_layer(bad), config.optimizer.learning_rate);
  }
}

}  // namespace hs
