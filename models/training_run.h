// TrainingRun: what train() does, in four files. models/train.cpp has the loop, models/validation.cpp the evaluations
// and what may end it early, models/training_checks.cpp what must not pass unnoticed, models/resume.cpp the state.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/observe.h"
#include "models/captured_step.h"
#include "models/rank_step.h"
#include "models/step_phases.h"
#include "models/train.h"

namespace hs {

// Scalars logged on the device, so that no step waits for one.
class DeviceLog {
 public:
  // Has room for `max` scalars.
  DeviceLog(int64_t max, Device device) : on_device_(Tensor::empty({max}, DType::f32, device)) {}

  void add(const Tensor& scalar) { on_device_.slice(added_++, {}).copy_from(scalar); }  // REQUIRES: there is room
  void added(int64_t count) { added_ += count; }       // by recorded steps, to tensor()
  int64_t size() const { return added_; }              // number of scalars added
  const Tensor& tensor() const { return on_device_; }  // (max) f32; the first size() are valid
  void restart() { added_ = read_ = 0; }               // forgets all scalars

  // Returns the scalars added since the last call; waits for the device.
  std::vector<float> read() {
    const int64_t begin = std::exchange(read_, added_);
    return on_device_.slice(begin, {added_ - begin}).to_vector<float>();
  }

 private:
  Tensor on_device_;  // (max)
  int64_t added_ = 0, read_ = 0;
};

// The losses of an epoch's batches.
class Losses {
 public:
  Losses(int64_t batches, Device device) : log_(batches, device) {}

  // Those of the epoch's first `batches`, which were read before the run was interrupted, and none after them.
  void restart(int64_t batches = 0, double sum = 0, int64_t samples = 0) {
    log_.restart();
    samples_.clear();
    before_ = batches;
    read_ = 0;
    sum_ = sum;
    count_ = samples;
  }
  void add(const Tensor& loss, int64_t samples) {  // loss: the mean over these samples
    log_.add(loss);
    samples_.push_back(samples);
  }
  void added(int64_t batches, int64_t samples) {  // by recorded steps; samples of each
    log_.added(batches);
    samples_.insert(samples_.end(), static_cast<size_t>(batches), samples);
  }

  // Reads what was added since the last call. Returns the number, from 1, of the epoch's first batch whose loss is not
  // finite, or 0.
  int64_t read() {
    const Range range("read losses");
    last_read_ = Clock::now();
    for (const float loss : log_.read()) {
      sum_ += static_cast<double>(loss) * static_cast<double>(samples_[read_]);
      count_ += samples_[read_++];
      if (!std::isfinite(loss)) return before_ + static_cast<int64_t>(read_);
    }
    return 0;
  }
  // At the first step, then ten times a second.
  bool is_due() const { return read_ == 0 || Clock::now() - last_read_ > std::chrono::milliseconds(100); }
  double mean() const { return sum_ / static_cast<double>(count_); }  // of those read
  double sum() const { return sum_; }                                 // of loss * samples, over those read
  int64_t samples() const { return count_; }                          // number of those read
  const DeviceLog& log() const { return log_; }                       // where recorded steps add theirs

 private:
  using Clock = std::chrono::steady_clock;

  DeviceLog log_;
  std::vector<int64_t> samples_;  // of each batch so far
  int64_t before_ = 0;            // batches that were read before
  size_t read_ = 0;               // batches
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  Clock::time_point last_read_;
};

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
  Losses losses_;
  DeviceLog scales_;
  StepLogs logs_;
  std::unique_ptr<TrainStep> one_step_;
  RankStep* ranks_ = nullptr;  // one_step_, if gradients meet in a tree or among ranks
  std::optional<CapturedStep> captured_;
  std::optional<StepPhases> phases_;  // if a hook looks into a step
  TrainResult result_;
  int64_t epoch_ = 1;        // from 1
  int64_t step_ = 0;         // steps of it that are done
  int64_t position_ = 0;     // samples of it that are done
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
