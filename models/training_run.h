// TrainingRun: what train() does, in four files. models/train.cpp has the loop, models/validation.cpp the evaluations
// and what may end it early, models/training_checks.cpp what must not pass unnoticed, models/resume.cpp the state.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/captured_step.h"
#include "models/loss_log.h"
#include "models/rank_step.h"
#include "models/step_phases.h"
#include "models/train.h"

namespace hs {

// A run: its place (epoch and step), what it needs for a step, and its results so far.
class TrainingRun {
 public:
  TrainingRun(Module& model, ParameterArena& arena, BatchSource& training, BatchSource& test, const TrainConfig& config,
              const TrainHooks& hooks);
  TrainResult train();

 private:
  void train_to_the_end();
  void abandon_sums() {
    if (RankSums* sums = config_.sum.sums()) sums->abandon();
  }
  void compare_weights();
  void begin_epoch();
  bool steps();
  bool fits_group() const;
  void run_group();
  Batch run_step();
  void inspect_first_batch(const Batch& batch);
  std::vector<Batch> next_batches();
  void read_losses(const Batch& last);
  void check_skipped(const Batch& last);
  std::string first_bad_tensor(const Batch& last);
  void read_scales();
  void end_epoch();
  EpochResult evaluated_epoch(bool is_tested = true);
  void check_finite(const Evaluation& evaluation, const char* what, BatchSource& source);
  bool must_validate() const;
  void validate();
  const Validation* best() const;
  void keep_best();
  bool has_reached_target() const;
  std::string reason_to_end() const;
  void save();
  TrainingState state();
  void restore(const TrainingState& state);

  Module& model_;
  ParameterArena& arena_;
  BatchSource &training_, &test_;
  const TrainConfig& config_;
  const TrainHooks& hooks_;
  const int64_t batches_, steps_;  // of an epoch
  const std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
  const ResidentSet* const set_;
  // Where they are does not change from epoch to epoch: recorded steps write there.
  DeviceLog loss_log_, scales_;
  StepLogs logs_;
  std::unique_ptr<TrainStep> one_step_;
  RankStep* ranks_ = nullptr;  // one_step_, if gradients meet in a tree or among ranks
  std::optional<CapturedStep> captured_;
  std::optional<StepPhases> phases_;  // if a hook looks into a step
  TrainResult result_;
  int64_t epoch_ = 1;     // from 1
  int64_t step_ = 0;      // steps of it that are done
  int64_t position_ = 0;  // samples of it that are done
  std::optional<Losses> losses_;
  bool has_looked_ = false;  // with before_first_step
  bool stopped_ = false;     // by should_stop
  StepShare share_;          // of the step that runs
  bool time_is_up_ = false;
  Tensor best_;  // the weights of the best validation so far, as the arena's values; undefined: none is to be kept
  struct {
    int64_t steps = 0;     // taken since the last look at the scaler
    int64_t skipped = 0;   // until then
    int64_t in_a_row = 0;  // skipped, up to then
  } skips_;
};

// "conv1.weight, of layer conv1"
std::string with_layer(const std::string& parameter);
// Names the tensor with which a run's numbers ceased to be numbers, once train() has found that they did: a parameter,
// because a single one spoils everything else; then the output of the model's first stage that computes one from these
// images, if they are given; then a gradient; otherwise "the loss". The losses are read later than they are computed,
// so more may have gone wrong since. Uses the caller's ambient state.
std::string first_not_finite(const ParameterArena& arena, Module& model, const Tensor& images);
// A tensor of a state, the weights first; empty if all are finite.
std::string first_not_finite(const TrainingState& state, const ParameterArena& arena);

}  // namespace hs
