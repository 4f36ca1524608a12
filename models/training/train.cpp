// The training loop: get a step's batches, run it (models/training/step_runner.h, models/training/train_step.h), read
// the losses, evaluate after each epoch, save. docs/one_training_step.md walks through what a step calls.
#include "models/training/train.h"

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/clock.h"
#include "models/training/step_runner.h"
#include "models/training/training_run.h"

namespace hs {

TrainResult train(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test,
                  const TrainConfig& config, const TrainHooks& hooks) {
  check_run(model, arena, training, test, config);
  const int64_t batches = training.batches_per_epoch();
  const EpochSize epoch = {training.samples(), batches, (batches + config.accumulate - 1) / config.accumulate};

  const AmbientScope scope;
  const auto optimizer = make_optimizer(arena, optimizer_settings(config, epoch));
  GradScaler scaler(scaler_settings(config), config.device);
  ambient().training = true;
  ambient().fuse = config.fuse;
  ambient().seed = config.seed;
  ambient().step = optimizer->step_counter();
  ambient().micro_step = 0;

  TrainResult result;
  Position at;
  Losses losses(epoch, config, scaler.config().enabled);
  const RunParts parts{model, arena, *optimizer, scaler, training, config, hooks};
  const auto runner = make_step_runner(parts);
  NumberCheck numbers{parts, runner->step(), losses};
  Evaluator evaluator{parts, test, numbers, result};
  Saver saver{parts, numbers, evaluator, at, losses, result};
  Reporter reporter{hooks};
  if (hooks.resume_from) saver.restore(*hooks.resume_from, epoch);

  // Runs the next step, or the several that a graph takes as one.
  const auto take_step = [&] {
    const double start = steady_seconds();
    const Range range("step", at.step + 1);
    const NextStep next = runner->next(at, result);
    runner->run(next, losses, result.parts);
    at = {at.epoch, at.step + next.steps, at.samples + next.samples()};
    result.samples += next.samples();
    numbers.skips.ran(next.steps);
    if (losses.is_due() || at.step == epoch.steps) numbers.read_losses(at, next.last_batch());
    const double seconds = result.seconds + steady_seconds() - start;
    reporter.tell({at.epoch, at.step, epoch.steps, losses.mean(), seconds, result.parts}, next.steps);
    result.seconds += steady_seconds() - start;  // what the hooks took counts, too
  };
  // Evaluates and saves what is due after a step, or after the last one of a run that is resumed. Returns whether there
  // is another one.
  const auto evaluate_and_save = [&] {
    const bool time_is_up = runner->time_is_up(result.seconds);
    if (evaluator.must_validate(at, epoch.steps)) evaluator.validate(at);
    if (at.step == epoch.steps) {
      runner->end_epoch(at);
      const bool is_last = at.epoch == config.epochs || !evaluator.reason_to_end(time_is_up).empty();
      evaluator.test_epoch(at, losses.mean(), is_last || at.epoch % config.test_every == 0);
      losses.read_scales(result.loss_scales);
      if (hooks.on_epoch) hooks.on_epoch(at.epoch, result.epochs.back());
      at = {at.epoch + 1};
      losses.restart();
    }
    result.reached_target = evaluator.has_reached_target();
    if (at.epoch > config.epochs) return false;
    result.ended_early = evaluator.reason_to_end(time_is_up);
    if (!result.ended_early.empty()) return false;
    if (reporter.wants_state) saver.save();
    return true;
  };

  try {
    while (!reporter.stopped && evaluate_and_save()) take_step();
    losses.read_scales(result.loss_scales);
    if (!reporter.stopped && hooks.on_state) saver.save();
    // A run that ended within an epoch is tested after the save, so that no state has this test.
    if (!reporter.stopped && at.step > 0) {
      numbers.read_losses(at);
      evaluator.test_epoch(at, losses.mean(), true);
    }
  } catch (const Interrupted&) {
    result.interrupted = true;
    if (hooks.on_state) saver.save();
  }
  result.steps = optimizer->steps();
  result.skipped_steps = scaler.skipped();
  result.loss_scale = scaler.scale();
  // What was evaluated is what the caller gets.
  if (const Tensor average = optimizer->average(); average.defined()) arena.values.copy_from(average);
  if (!result.interrupted && !reporter.stopped) evaluator.keep_best();
  return result;
}

}  // namespace hs
