#include "models/training/step_runner.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/ambient.h"
#include "engine/check.h"

namespace hs {
namespace {

// The set that a graph of several steps takes its batches from; nullptr if a graph is one step.
const ResidentSet* resident_set(BatchSource& training, const TrainConfig& config) {
  if (config.graph_steps == 1) return nullptr;
  const ResidentSet* set = config.graph && config.accumulate == 1 ? training.resident() : nullptr;
  if (!set) {
    fail(ExitCode::usage,
         "graph of {} steps: needs a graph, the training set on the device (cache device) and no accumulation",
         config.graph_steps);
  }
  return set;
}

bool own_time_is_up(const TrainConfig& config, double seconds) {
  return config.max_seconds > 0 && seconds >= config.max_seconds;
}

}  // namespace

StepRunner::StepRunner(Module& model, ParameterArena& arena, Optimizer& optimizer, GradScaler& scaler,
                       BatchSource& training, const TrainConfig& config, const TrainHooks& hooks)
    : arena_(arena),
      scaler_(scaler),
      training_(training),
      config_(config),
      hooks_(hooks),
      set_(resident_set(training, config)) {
  const PixelScale scale = training.pixel_scale();
  if (config.sum.tree || config.sum.exchange) {
    step_ = std::make_unique<RankStep>(model, arena, optimizer, scaler, scale, config, hooks.is_interrupted);
  } else {
    step_ = std::make_unique<TrainStep>(model, arena, optimizer, scaler, scale, config, hooks.is_interrupted);
  }
  if (hooks.on_loss || hooks.on_gradients) {
    phases_.emplace([this](std::string_view phase, const char*) {
      if (phase == "backward" && hooks_.on_loss) hooks_.on_loss(step_->losses().back());
      if (phase == "update" && hooks_.on_gradients) hooks_.on_gradients(scaler_);
    });
  }
  if (config.graph) captured_.emplace(*step_, arena, optimizer, config);
}

NextStep StepRunner::next(const Position& at, TrainResult& result) {
  NextStep next;
  next.share.time_is_up = own_time_is_up(config_, result.seconds);
  if (fits_group(at)) {
    next.steps = config_.graph_steps;
    next.share.sizes.assign(static_cast<size_t>(next.steps), set_->batch);
    return next;
  }
  {
    const StepPart part("wait", result.parts.wait);
    // The last step of an epoch gets the remaining batches. A leaf is here a micro-batch (engine/ranks/leaf_tree.h).
    const int64_t done = at.step * config_.accumulate;
    const int64_t count = std::min(training_.batches_per_epoch() - done, config_.accumulate);
    const LeafRange own = leaves_of(count, config_.sum.ranks(), config_.sum.rank());
    next.share.first = own.begin;
    for (int64_t i = own.begin; i < own.end; ++i) {
      if (!config_.sum.exchange && hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
      next.batches.push_back(training_.next());
    }
    for (int64_t i = 0; i < count; ++i) {
      next.share.sizes.push_back(config_.sum.exchange
                                     ? std::min(training_.batch(), training_.samples() - (done + i) * training_.batch())
                                     : next.batches[static_cast<size_t>(i)].labels.size());
    }
  }
  {
    const StepPart part("upload", result.parts.upload);
    for (Batch& batch : next.batches) batch = on_device(batch, config_.device);
  }
  if (!next.batches.empty()) show_first_batch(next.batches[0]);
  return next;
}

// Whole batches only, and no validation may fall between two of the steps.
bool StepRunner::fits_group(const Position& at) const {
  return set_ && (at.step + config_.graph_steps) * set_->batch <= training_.samples() &&
         (!config_.validation || config_.validate_every.steps == 0);
}

void StepRunner::run(const NextStep& next, Losses& losses, StepSeconds& seconds) try {
  if (next.steps > 1) return run_group(next, losses, seconds);
  step_->announce(next.share);
  const std::vector<int64_t>& sizes = next.share.sizes;
  const std::vector<Tensor>& step_losses =
      captured_ ? captured_->run(next.batches, sizes, seconds) : step_->run(next.batches, seconds);
  time_is_up_ = step_->finish(seconds);
  for (size_t i = 0; i < sizes.size(); ++i) losses.add(step_losses[i], sizes[i]);
  losses.add_scale(scaler_.state().slice(0, {}));
} catch (...) {
  if (RankSums* sums = config_.sum.sums()) sums->abandon();
  throw;
}

void StepRunner::run_group(const NextStep& next, Losses& losses, StepSeconds& seconds) {
  if (hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
  captured_->begin_group(*set_, training_.skip(next.steps), losses.size(), seconds);
  if (!has_shown_ && hooks_.before_first_step) {
    const Autocast precision(config_.precision, arena_);
    show_first_batch(captured_->gather(*set_, 0));
  }
  StepLogs logs = losses.tensors();
  captured_->run_group(*set_, next.steps, logs, seconds);
  losses.count_recorded(next.steps, set_->batch);
}

void StepRunner::show_first_batch(const Batch& batch) {
  if (!hooks_.before_first_step || std::exchange(has_shown_, true)) return;
  const Autocast precision(config_.precision, arena_);
  const auto [input, labels] = step_->input_of(batch);
  hooks_.before_first_step(input, labels);
}

bool StepRunner::time_is_up(double seconds) const {
  return config_.sum.exchange ? time_is_up_ : own_time_is_up(config_, seconds);
}

}  // namespace hs
