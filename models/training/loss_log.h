// What the steps of a run leave on the device for the loop of models/training/train.cpp: losses and loss scales.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "engine/clock.h"
#include "engine/observe.h"
#include "models/training/train.h"

namespace hs {

// What an epoch is made of.
struct EpochSize {
  int64_t samples, batches, steps;
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

  // Forgets all but those of the epoch's first `batches`, which were read before the run was interrupted.
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
    last_read_ = steady_seconds();
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
  bool is_due() const { return every_step_ || read_ == 0 || steady_seconds() - last_read_ > 0.1; }
  double mean() const { return sum_ / static_cast<double>(count_); }  // of those read
  double sum() const { return sum_; }                                 // of loss * samples, over those read
  int64_t samples() const { return count_; }                          // number of those read
  int64_t size() const { return losses_.size(); }                     // number of losses added
  StepLogs tensors() const { return {losses_.tensor(), has_scales_ ? scales_.tensor() : Tensor()}; }

 private:
  DeviceLog losses_, scales_;
  const bool has_scales_, every_step_;
  std::vector<int64_t> samples_;  // of each batch so far
  int64_t before_ = 0;            // batches that were read before
  size_t read_ = 0;               // batches
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  double last_read_ = 0;          // when, by steady_seconds()
};

}  // namespace hs
