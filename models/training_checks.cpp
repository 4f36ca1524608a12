#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "kernels/cast/cast.h"
#include "models/layers.h"
#include "models/training_run.h"

#if __FINITE_MATH_ONLY__
#error "the search for NaN needs IEEE arithmetic: leave out -ffast-math and -ffinite-math-only"
#endif

namespace hs {
namespace {

constexpr int64_t max_skipped = 20;  // in a row, once the scale is at its smallest

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

}  // namespace

std::string with_layer(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : fmt::format("{}, of layer {}", parameter, parameter.substr(0, dot));
}

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

std::string first_not_finite(const TrainingState& state, const ParameterArena& arena) {
  for (const NamedParameter& parameter : arena.parameters()) {
    if (!is_finite(state.tensors.at(parameter.name))) return parameter.name;
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.dtype() == DType::f32 && !is_finite(tensor)) return name;
  }
  return "";
}

// Replicas that have drifted apart would continue, and nothing else would show it.
void TrainingRun::compare_weights() {
  Exchange* const ranks = config_.sum.exchange;
  if (!ranks) return;
  const Tensor values = arena_.values.to(Device::cpu);
  const uint32_t sum = crc32c(values.raw_data(), static_cast<size_t>(values.bytes()));
  std::vector<float> sums(2 * static_cast<size_t>(ranks->size()));  // of each rank: both halves, as integers
  const size_t own = 2 * static_cast<size_t>(ranks->rank());
  sums[own] = static_cast<float>(sum >> 16);
  sums[own + 1] = static_cast<float>(sum & 0xffff);
  if (!ranks->gather(sums, hooks_.is_interrupted)) throw Interrupted();
  for (size_t i = 2; i < sums.size(); i += 2) {
    if (sums[i] == sums[0] && sums[i + 1] == sums[1]) continue;
    fail(ExitCode::rank,
         "rank {}: its weights after step {} of epoch {} are not those of rank 0; use the same program and kind of CPU "
         "for all ranks",
         i / 2, step_, epoch_);
  }
}

void TrainingRun::read_losses(const Batch& last) {
  const int64_t bad_batch = losses_.read();
  if (bad_batch == 0) return check_skipped(last);
  fail(ExitCode::numeric,
       "the loss became {} at step {} of epoch {}; first tensor that is not finite: {}; try a smaller learning rate "
       "than {}",
       std::isnan(losses_.sum()) ? "nan" : "inf", (bad_batch + config_.accumulate - 1) / config_.accumulate, epoch_,
       first_bad_tensor(last), config_.optimizer.learning_rate);
}

// Skipping is how a loss scale that is too large gets smaller. Once it cannot, nothing is learnt any more.
void TrainingRun::check_skipped(const Batch& last) {
  const OptimizerConfig& rule = config_.optimizer;
  const bool skips_outliers = rule.outlier > 0 || rule.loss_outlier > 0;
  if (!scaler_.config().enabled && rule.clip <= 0 && !skips_outliers) return;
  const bool can_fall = scaler_.config().enabled && scaler_.scale() > scaler_.config().smallest;
  const int64_t skipped = scaler_.skipped(), steps = std::exchange(skips_.steps, 0);
  const bool all = skipped - std::exchange(skips_.skipped, skipped) == steps;
  skips_.in_a_row = all && !can_fall ? skips_.in_a_row + steps : 0;
  if (skips_.in_a_row < max_skipped) return;
  fail(ExitCode::numeric,
       "{} steps in a row, up to step {} of epoch {}, were skipped because a gradient was not finite{}; first tensor "
       "that is not finite: {}; try a smaller learning rate than {}",
       skips_.in_a_row, step_, epoch_, skips_outliers ? ", or the step an outlier" : "", first_bad_tensor(last),
       rule.learning_rate);
}

// An epoch's last update affects the loss of an evaluation first.
void TrainingRun::check_finite(const Evaluation& evaluation, const char* what, BatchSource& source) {
  if (std::isfinite(evaluation.loss)) return;
  fail(ExitCode::numeric,
       "the {} loss became {} after step {} of epoch {}; first tensor that is not finite: {}; try a smaller learning "
       "rate than {}",
       what, std::isnan(evaluation.loss) ? "nan" : "inf", step_, epoch_,
       first_bad_tensor(config_.sum.exchange ? Batch{} : source.next()), config_.optimizer.learning_rate);
}

std::string TrainingRun::first_bad_tensor(const Batch& last) {
  const Autocast amp(config_.precision, arena_);
  if (!last.images.defined()) return first_not_finite(arena_, model_, {});
  return first_not_finite(arena_, model_, one_step_->input_of(on_device(last, config_.device)).input);
}

}  // namespace hs
