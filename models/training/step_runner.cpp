#include "models/training/step_runner.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/check.h"
#include "models/training/captured_step.h"
#include "models/training/rank_step.h"

namespace hs {

StepRunner::StepRunner(const RunParts& parts, std::unique_ptr<TrainStep> step)
    : parts_(parts),
      step_(step
                ? std::move(step)
                : std::make_unique<TrainStep>(parts.model, parts.arena, parts.optimizer, parts.scaler,
                                              parts.training.pixel_scale(), parts.config, parts.hooks.is_interrupted)) {
  if (parts.hooks.on_loss || parts.hooks.on_gradients) {
    phases_.emplace([this](std::string_view phase, const char*) {
      if (phase == "backward" && parts_.hooks.on_loss) parts_.hooks.on_loss(step_->losses().back());
      if (phase == "update" && parts_.hooks.on_gradients) parts_.hooks.on_gradients(parts_.scaler);
    });
  }
}

NextStep StepRunner::next(const Position& at, TrainResult& result) {
  NextStep next;
  {
    const StepPart part("wait", result.parts.wait);
    for (int64_t left = micro_batches(at); left > 0; --left) {
      if (is_interrupted()) throw Interrupted();
      next.batches.push_back(parts_.training.next());
      next.sizes.push_back(next.batches.back().labels.size());
    }
  }
  upload(next, result.parts);
  return next;
}

// The last step of an epoch gets the remaining batches.
int64_t StepRunner::micro_batches(const Position& at) const {
  const int64_t accumulate = parts_.config.accumulate;
  return std::min(parts_.training.batches_per_epoch() - at.step * accumulate, accumulate);
}

void StepRunner::upload(NextStep& next, StepSeconds& seconds) {
  {
    const StepPart part("upload", seconds.upload);
    for (Batch& batch : next.batches) batch = on_device(batch, parts_.config.device);
  }
  if (wants_first_batch() && !next.batches.empty()) show_first_batch(next.batches[0]);
}

void StepRunner::show_first_batch(const Batch& batch) {
  has_shown_ = true;
  const Autocast precision(parts_.config.precision, parts_.arena);
  const auto [input, labels] = step_->input_of(batch);
  parts_.hooks.before_first_step(input, labels);
}

void StepRunner::run(const NextStep& next, Losses& losses, StepSeconds& seconds) {
  keep_losses(step_->run(next.batches, seconds), next.sizes, losses);
}

void StepRunner::keep_losses(const std::vector<Tensor>& step_losses, const std::vector<int64_t>& sizes,
                             Losses& losses) const {
  for (size_t i = 0; i < sizes.size(); ++i) losses.add(step_losses[i], sizes[i]);
  losses.add_scale(parts_.scaler.state().slice(0, {}));
}

bool StepRunner::time_is_up(double seconds) const {
  return parts_.config.max_seconds > 0 && seconds >= parts_.config.max_seconds;
}

std::unique_ptr<StepRunner> make_step_runner(const RunParts& parts) {
  const TrainConfig& config = parts.config;
  check(!config.graph || (!parts.hooks.on_gradients && !parts.hooks.on_loss),
        "train: on_gradients and on_loss cannot be called within a graph; switch one off");
  if (config.sum.tree || config.sum.exchange) return std::make_unique<RankRunner>(parts);
  if (config.graph || config.graph_steps > 1) return std::make_unique<GraphRunner>(parts);
  return std::make_unique<StepRunner>(parts);
}

}  // namespace hs
