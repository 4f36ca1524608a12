// What the loop of models/training/train.cpp calls around its steps. models/training/training_checks.cpp has the bodies
// of NumberCheck, models/training/validation.cpp those of Evaluator, models/training/resume.cpp those of Saver.
#pragma once

#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/observe.h"
#include "models/training/train.h"
#include "models/training/train_step.h"

namespace hs {

// What an epoch is made of.
struct EpochSize {
  int64_t samples, batches, steps;
};

// Where a run is.
struct Position {
  int64_t epoch = 1;    // from 1
  int64_t step = 0;     // steps of it that are done
  int64_t samples = 0;  // samples of it that are done
};

// Where steps log, by index; scales are undefined without loss scaling.
struct StepLogs {
  Tensor losses, scales;  // f32, one element per step
};

// Scalars logged on the device, so that no step waits for one.
class DeviceLog {
 public:
  // Has room for `max` scalars.
  DeviceLog(int64_t max, Device device) : on_device_(Tensor::empty({max}, DType::f32, device)) {}

  void add(const Tensor& scalar) { on_device_.slice(added_++, {}).copy_from(scalar); }  // REQUIRES: there is room
  void count_recorded(int64_t count) { added_ += count; }  // what recorded steps have added to tensor()
  int64_t size() const { return added_; }                  // number of scalars added
  const Tensor& tensor() const { return on_device_; }      // (max) f32; the first size() are valid
  void restart() { added_ = read_ = 0; }                   // forgets all scalars

  // Returns the scalars added since the last call; waits for the device.
  std::vector<float> read() {
    const int64_t begin = std::exchange(read_, added_);
    return on_device_.slice(begin, {added_ - begin}).to_vector<float>();
  }

 private:
  Tensor on_device_;  // (max)
  int64_t added_ = 0, read_ = 0;
};

// What the steps of an epoch leave on the device: the losses of their batches and, with loss scaling, the scales.
class Losses {
 public:
  Losses(const EpochSize& epoch, const TrainConfig& config, bool has_scales)
      : losses_(epoch.batches, config.device),
        scales_(has_scales ? epoch.steps : 0, config.device),
        has_scales_(has_scales),
        every_step_(config.sum.exchange != nullptr) {}

  // Those of the epoch's first `batches`, which were read before the run was interrupted, and none after them.
  void restart(int64_t batches = 0, double sum = 0, int64_t samples = 0) {
    losses_.restart();
    scales_.restart();
    samples_.clear();
    before_ = batches;
    read_ = 0;
    sum_ = sum;
    count_ = samples;
  }
  void add(const Tensor& loss, int64_t samples) {  // loss: the mean over these samples
    losses_.add(loss);
    samples_.push_back(samples);
  }
  void add_scale(const Tensor& scale) {
    if (has_scales_) scales_.add(scale);
  }
  // By recorded steps of one batch each, to tensors().
  void count_recorded(int64_t steps, int64_t samples_of_each) {
    losses_.count_recorded(steps);
    if (has_scales_) scales_.count_recorded(steps);
    samples_.insert(samples_.end(), static_cast<size_t>(steps), samples_of_each);
  }

  // Reads what was added since the last call. Returns the number, from 1, of the epoch's first batch whose loss is not
  // finite, or 0.
  int64_t read() {
    const Range range("read losses");
    last_read_ = Clock::now();
    for (const float loss : losses_.read()) {
      sum_ += static_cast<double>(loss) * static_cast<double>(samples_[read_]);
      count_ += samples_[read_++];
      if (!std::isfinite(loss)) return before_ + static_cast<int64_t>(read_);
    }
    return 0;
  }
  void read_scales(std::vector<float>& all) {  // adds those since the last call
    for (const float scale : scales_.read()) all.push_back(scale);
  }
  // At the first step, then ten times a second. Among ranks after each step: all read in the same one.
  bool is_due() const {
    return every_step_ || read_ == 0 || Clock::now() - last_read_ > std::chrono::milliseconds(100);
  }
  double mean() const { return sum_ / static_cast<double>(count_); }  // of those read
  double sum() const { return sum_; }                                 // of loss * samples, over those read
  int64_t samples() const { return count_; }                          // number of those read
  int64_t size() const { return losses_.size(); }                     // number of losses added
  StepLogs tensors() const { return {losses_.tensor(), has_scales_ ? scales_.tensor() : Tensor()}; }

 private:
  using Clock = std::chrono::steady_clock;

  DeviceLog losses_, scales_;
  const bool has_scales_, every_step_;
  std::vector<int64_t> samples_;  // of each batch so far
  int64_t before_ = 0;            // batches that were read before
  size_t read_ = 0;               // batches
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  Clock::time_point last_read_;
};

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

// Ends a run whose numbers are not finite any more: throws Error (numeric) that names the first tensor to show it.
struct NumberCheck {
  Module& model;
  ParameterArena& arena;
  const GradScaler& scaler;
  const TrainStep& step;  // how the model reads a batch
  const TrainConfig& config;
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
struct Evaluator {
  Module& model;
  ParameterArena& arena;
  const Optimizer& optimizer;
  BatchSource& test;
  const TrainConfig& config;
  const TrainHooks& hooks;
  const NumberCheck& numbers;
  TrainResult& result;
  Tensor best = {};  // the weights of the best validation so far, as the arena's values; undefined: none is to be kept

  bool must_validate(const Position& at, int64_t steps_per_epoch) const;
  void validate(const Position& at);
  void end_epoch(const Position& at, double training_loss, bool is_tested);
  bool has_reached_target() const;                   // the newest validation or, if there are none, the newest test
  std::string reason_to_end(bool time_is_up) const;  // before the last epoch; empty: none
  void keep_best();                                  // once training has ended

 private:
  Evaluation evaluated(BatchSource& source, const char* what, const Position& at, double& seconds) const;
  const Validation* best_validation() const;
};

// Hands out a run's state, and continues from one: all that changes as the run goes on.
struct Saver {
  ParameterArena& arena;
  Optimizer& optimizer;
  GradScaler& scaler;
  const TrainConfig& config;
  const TrainHooks& hooks;
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
