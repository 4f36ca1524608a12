// The training loop: get a step's batches, run it (models/train_step.cpp), check the losses, evaluate after each epoch.
// Follow the calls from train() (docs/one_training_step.md walks through them).
#include "models/train.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/ambient.h"
#include "engine/check.h"
#include "models/training_run.h"

namespace hs {
namespace {

constexpr int64_t max_steps = std::numeric_limits<int32_t>::max();  // that the device's counter holds

OptimizerConfig with_total_steps(OptimizerConfig config, int64_t steps, int64_t epochs) {
  if (epochs > max_steps / std::max<int64_t>(steps, 1)) {
    fail(ExitCode::usage,
         "{} epochs of {} steps are more than {} steps; train for fewer epochs, or with a larger batch", epochs, steps,
         max_steps);
  }
  config.schedule.total_steps = static_cast<int32_t>(steps * epochs);
  return config;
}

GradScalerConfig scaling_of(const TrainConfig& config) {
  GradScalerConfig scaling = config.scaler;
  scaling.enabled = config.precision == Precision::f16;
  return scaling;
}

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

}  // namespace

TrainingRun::TrainingRun(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                         const TrainConfig& config, const TrainHooks& hooks)
    : model_(model),
      arena_(arena),
      training_(training),
      test_(test),
      config_(config),
      hooks_(hooks),
      batches_(training.batches_per_epoch()),
      steps_((batches_ + config.accumulate - 1) / config.accumulate),
      optimizer_(make_optimizer(arena, with_total_steps(config.optimizer, steps_, config.epochs))),
      scaler_(scaling_of(config), config.device),
      set_(resident_set(training, config)),
      losses_(batches_, config.device),
      scales_(scaler_.config().enabled ? steps_ : 0, config.device),
      logs_{losses_.log().tensor(), scaler_.config().enabled ? scales_.tensor() : Tensor()} {
  ambient().training = true;
  ambient().fuse = config.fuse;
  ambient().seed = config.seed;
  ambient().step = optimizer_->step_counter();
  ambient().micro_step = 0;
  const PixelScale scale = training.pixel_scale();
  if (config.sum.tree || config.sum.exchange) {
    auto step = std::make_unique<RankStep>(model, arena, *optimizer_, scaler_, scale, config, hooks.is_interrupted);
    ranks_ = step.get();
    one_step_ = std::move(step);
  } else {
    one_step_ = std::make_unique<TrainStep>(model, arena, *optimizer_, scaler_, scale, config, hooks.is_interrupted);
  }
  if (hooks.on_loss || hooks.on_gradients) {
    phases_.emplace([this](std::string_view phase, const char*) {
      if (phase == "backward" && hooks_.on_loss) hooks_.on_loss(one_step_->losses().back());
      if (phase == "update" && hooks_.on_gradients) hooks_.on_gradients(scaler_);
    });
  }
  if (config.graph) captured_.emplace(*one_step_, arena, *optimizer_, config);
  begin_epoch();
  if (hooks.resume_from) restore(*hooks.resume_from);
}

TrainResult TrainingRun::train() {
  try {
    train_to_the_end();
  } catch (const Interrupted&) {
    abandon_sums();
    result_.interrupted = true;
    if (hooks_.on_state) save();
  } catch (...) {
    abandon_sums();
    throw;
  }
  result_.steps = optimizer_->steps();
  result_.skipped_steps = scaler_.skipped();
  result_.loss_scale = scaler_.scale();
  // What was evaluated is what the caller gets.
  if (const Tensor average = optimizer_->average(); average.defined()) arena_.values.copy_from(average);
  if (!result_.interrupted && !stopped_) keep_best();
  return std::move(result_);
}

// One turn is what follows a step, then the next step. So a run that was interrupted in a validation, or in the
// evaluation at the end of an epoch, resumes with it.
void TrainingRun::train_to_the_end() {
  compare_weights();
  for (bool wants_state = false; !stopped_; wants_state = steps()) {
    if (must_validate()) validate();
    if (step_ == steps_) end_epoch();
    result_.reached_target = has_reached_target();
    if (epoch_ > config_.epochs) break;
    result_.ended_early = reason_to_end();
    if (!result_.ended_early.empty()) break;
    if (wants_state) save();
  }
  read_scales();
  if (stopped_) return;
  if (hooks_.on_state) save();
  // After the save: a run that is resumed with more patience continues as if it had not stopped here.
  if (step_ > 0) result_.epochs.push_back(evaluated_epoch());
}

void TrainingRun::begin_epoch() {
  step_ = position_ = 0;
  losses_.restart();
  scales_.restart();
}

// This rank's batches of the step, and the samples of each one of all ranks.
std::vector<Batch> TrainingRun::next_batches() {
  const StepPart part("wait", result_.parts.wait);
  std::vector<Batch> batches;
  share_.sizes.clear();
  // The last step of an epoch gets the remaining batches.
  const int64_t done = step_ * config_.accumulate;
  const int64_t leaves = std::min(batches_ - done, config_.accumulate);
  const LeafRange own = leaves_of(leaves, config_.sum.ranks(), config_.sum.rank());
  if (config_.sum.exchange) {
    for (int64_t i = done; i < done + leaves; ++i) {
      share_.sizes.push_back(std::min(training_.batch(), training_.samples() - i * training_.batch()));
    }
  }
  share_.first = own.begin;
  for (int64_t i = own.begin; i < own.end; ++i) {
    if (!config_.sum.exchange && hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
    batches.push_back(training_.next());
    if (!config_.sum.exchange) share_.sizes.push_back(batches.back().labels.size());
  }
  return batches;
}

// One step, or a group of them in one graph. Returns whether the state after it is wanted.
bool TrainingRun::steps() {
  const double start = steady_seconds();
  const Range range("step", step_ + 1);
  const int64_t first = step_ + 1;
  Batch last;
  if (fits_group()) {
    run_group();
  } else {
    last = run_step();
  }
  skips_.steps += step_ - first + 1;
  if (config_.sum.exchange || losses_.is_due() || step_ == steps_) read_losses(last);  // all ranks in the same step
  bool wants_state = false;
  for (int64_t done = first; done <= step_; ++done) {
    const double seconds = result_.seconds + steady_seconds() - start;
    const Progress progress{epoch_, done, steps_, losses_.mean(), seconds, result_.parts};
    if (hooks_.on_step) hooks_.on_step(progress);
    wants_state = (hooks_.wants_state && hooks_.wants_state(progress)) || wants_state;
  }
  stopped_ = hooks_.should_stop && hooks_.should_stop();
  result_.seconds += steady_seconds() - start;
  return wants_state;
}

// Whole batches only, and no validation may fall between two of the steps.
bool TrainingRun::fits_group() const {
  return set_ && (step_ + config_.graph_steps) * set_->batch <= training_.samples() &&
         (!config_.validation || config_.validate_every.steps == 0);
}

void TrainingRun::run_group() {
  if (hooks_.is_interrupted && hooks_.is_interrupted()) throw Interrupted();
  const int64_t count = config_.graph_steps, samples = count * set_->batch;
  captured_->begin_group(*set_, training_.skip(count), losses_.log().size(), result_.parts);
  if (!has_looked_ && hooks_.before_first_step) {
    const Autocast amp(config_.precision, arena_);
    inspect_first_batch(captured_->gather(*set_, 0));
  }
  captured_->run_group(*set_, count, logs_, result_.parts);
  losses_.added(count, set_->batch);
  if (scaler_.config().enabled) scales_.added(count);
  step_ += count;
  position_ += samples;
  result_.samples += samples;
}

// Returns the last of its batches.
Batch TrainingRun::run_step() {
  std::vector<Batch> micro_batches = next_batches();
  {
    const StepPart part("upload", result_.parts.upload);
    for (Batch& batch : micro_batches) batch = on_device(batch, config_.device);
  }
  if (!micro_batches.empty()) inspect_first_batch(micro_batches[0]);
  share_.last = config_.max_seconds > 0 && result_.seconds >= config_.max_seconds;
  if (ranks_) ranks_->announce(share_);
  const auto wait_for_ranks = [this] {
    if (ranks_) ranks_->wait_for_all();
  };
  const std::vector<Tensor>& losses = captured_
                                          ? captured_->run(micro_batches, share_.sizes, wait_for_ranks, result_.parts)
                                          : one_step_->run(micro_batches, result_.parts);
  time_is_up_ = ranks_ ? ranks_->finish(result_.parts) : share_.last;
  ++step_;
  for (size_t i = 0; i < share_.sizes.size(); ++i) {
    losses_.add(losses[i], share_.sizes[i]);
    position_ += share_.sizes[i];
    result_.samples += share_.sizes[i];
  }
  if (scaler_.config().enabled) scales_.add(scaler_.state().slice(0, {}));
  return micro_batches.empty() ? Batch{} : micro_batches.back();
}

void TrainingRun::inspect_first_batch(const Batch& batch) {
  if (!hooks_.before_first_step || has_looked_) return;
  has_looked_ = true;
  const Autocast amp(config_.precision, arena_);
  const auto [input, labels] = one_step_->input_of(batch);
  hooks_.before_first_step(input, labels);
}

void TrainingRun::end_epoch() {
  compare_weights();
  const bool is_last = epoch_ == config_.epochs || !reason_to_end().empty();
  result_.epochs.push_back(evaluated_epoch(is_last || epoch_ % config_.test_every == 0));
  read_scales();
  if (hooks_.on_epoch) hooks_.on_epoch(epoch_, result_.epochs.back());
  ++epoch_;
  begin_epoch();
}

void TrainingRun::read_scales() {
  for (const float scale : scales_.read()) result_.loss_scales.push_back(scale);
}

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  check(!config.graph || (!hooks.on_gradients && !hooks.on_loss),
        "train: on_gradients and on_loss cannot be called within a graph; switch one off");
  check(!config.sum.exchange ||
            (config.graph_steps == 1 && !hooks.should_stop && config.accumulate >= config.sum.exchange->size()),
        "train: ranks need a micro-batch each, and neither a graph of several steps nor should_stop; use a larger "
        "accumulate");
  const AmbientScope scope;
  return TrainingRun(model, arena, training, test, config, hooks).train();
}

}  // namespace hs
