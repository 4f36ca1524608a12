// What the loop of models/training/train.cpp calls around its steps. models/training/training_checks.cpp has the bodies
// of the settings and NumberCheck, models/training/validation.cpp those of Evaluator, models/training/resume.cpp those
// of Saver.
#pragma once

#include <string>
#include <utility>

#include "models/training/loss_log.h"
#include "models/training/train.h"
#include "models/training/train_step.h"

namespace hs {

// Where a run is.
struct Position {
  int64_t epoch = 1;    // from 1
  int64_t step = 0;     // steps of it that are done
  int64_t samples = 0;  // samples of it that are done
};

// What a run works on and with.
struct RunParts {
  Module& model;
  ParameterArena& arena;
  Optimizer& optimizer;
  GradScaler& scaler;
  BatchSource& training;
  const TrainConfig& config;
  const TrainHooks& hooks;
};

// Throws Error (usage) for settings, and for parts of a run, with which it would train something else in silence.
void check_run(Module& model, const ParameterArena& arena, const BatchSource& training, const BatchSource& test,
               const TrainConfig& config);
// The schedule gets the number of all steps. Throws Error (usage) if they are too many.
OptimizerConfig optimizer_settings(const TrainConfig& config, const EpochSize& epoch);
GradScalerConfig scaler_settings(const TrainConfig& config);  // enabled in f16

// Counts the steps that were skipped one after another.
class Skips {
 public:
  void ran(int64_t steps) { steps_ += steps; }  // since the last look
  void resume(const GradScaler& scaler) { skipped_ = scaler.skipped(); }

  // How many in a row, up to now. Not those that made the loss scale smaller, which is what they are for.
  int64_t look(const GradScaler& scaler) {
    const bool can_fall = scaler.config().enabled && scaler.scale() > scaler.config().smallest;
    const int64_t skipped = scaler.skipped(), steps = std::exchange(steps_, 0);
    const bool all = skipped - std::exchange(skipped_, skipped) == steps;
    return in_a_row_ = all && !can_fall ? in_a_row_ + steps : 0;
  }

 private:
  int64_t steps_ = 0;     // taken since the last look
  int64_t skipped_ = 0;   // until then
  int64_t in_a_row_ = 0;  // skipped, up to then
};

// Tells the hooks of steps, and keeps what they answer.
struct Reporter {
  const TrainHooks& hooks;
  bool wants_state = false;  // after the last step
  bool stopped = false;      // by should_stop

  // Of the `count` steps that have run, up to `last`.
  void tell(const Progress& last, int64_t count) {
    wants_state = false;
    for (Progress progress = last; count > 0; --count) {
      progress.step = last.step - count + 1;
      if (hooks.on_step) hooks.on_step(progress);
      wants_state = (hooks.wants_state && hooks.wants_state(progress)) || wants_state;
    }
    stopped = hooks.should_stop && hooks.should_stop();
  }
};

// Ends a run whose numbers are not finite any more: throws Error (numeric) that names the first tensor to show it.
struct NumberCheck : RunParts {
  const TrainStep& step;  // how the model reads a batch
  Losses& losses;
  Skips skips = {};

  // Reads the losses, and how many steps were skipped. last: a batch of the step before; may be empty
  void read_losses(const Position& at, const Batch& last = {});
  void check_evaluation(const Evaluation& evaluation, const char* what, BatchSource& source, const Position& at) const;
  void check_state(const TrainingState& state, const Position& at) const;

 private:
  [[noreturn]] void refuse(const std::string& what, const Batch& batch) const;
};

// Evaluates a run's weights, for the result's epochs and validations, and says when they are good enough.
struct Evaluator : RunParts {
  BatchSource& test;
  const NumberCheck& numbers;
  TrainResult& result;
  Tensor best = {};  // the weights of the best validation so far, as the arena's values; undefined: none is to be kept

  bool must_validate(const Position& at, int64_t steps_per_epoch) const;
  void validate(const Position& at);
  void test_epoch(const Position& at, double training_loss, bool is_tested);
  bool has_reached_target() const;                   // the newest validation or, if there are none, the newest test
  std::string reason_to_end(bool time_is_up) const;  // before the last epoch; empty: none
  void keep_best();                                  // once training has ended

 private:
  Evaluation evaluated(BatchSource& source, const char* what, const Position& at, double& seconds) const;
  const Validation* best_validation() const;
};

// Hands out a run's state, and continues from one: all that changes as the run goes on.
struct Saver : RunParts {
  NumberCheck& numbers;
  Evaluator& evaluator;
  Position& at;
  Losses& losses;
  TrainResult& result;

  void save();  // to hooks.on_state
  void restore(const TrainingState& state, const EpochSize& epoch);

 private:
  TrainingState state();
};

}  // namespace hs
