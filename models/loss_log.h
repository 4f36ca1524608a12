// What training reads from the device now and then: losses and loss scales, logged there step by step. Internal to
// models/train.cpp.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/observe.h"
#include "engine/tensor.h"

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

// The losses of an epoch.
class Losses {
 public:
  explicit Losses(DeviceLog& log) : log_(log) { log_.restart(); }  // restarts the log

  // Those of the epoch's first `batches`, which were read before the run was interrupted.
  void restore(int64_t batches, double sum, int64_t samples) {
    before_ = batches;
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

 private:
  using Clock = std::chrono::steady_clock;

  DeviceLog& log_;
  std::vector<int64_t> samples_;  // of each batch so far
  int64_t before_ = 0;            // batches that were read before
  size_t read_ = 0;               // batches
  double sum_ = 0;                // of loss * samples
  int64_t count_ = 0;             // samples
  Clock::time_point last_read_;
};

}  // namespace hs
