// The gradient noise scale: how many samples a step could average before more of them no longer make its gradient much
// better (McCandlish, Kaplan, Amodei, "An empirical model of large-batch training", 2018, section 2.2 and appendix
// A.1).
//
// The mean squared norm of the gradient of n samples is |G|^2 + trace / n: G is the gradient of all, trace that of the
// covariance of one sample's. Two sizes give both: the first micro-batch of a step and the whole step.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/module.h"
#include "models/training/train.h"

namespace hs::bench::measure {

class NoiseScale {
 public:
  NoiseScale(int64_t micro_batch, int64_t step) : small_(micro_batch), large_(step) {}

  // Squared norms of one step's mean gradients.
  void add(double of_micro_batch, double of_step) {
    if (!std::isfinite(of_micro_batch) || !std::isfinite(of_step)) return;  // a step that the scaler skips
    ++steps_;
    small_sum_ += of_micro_batch;
    large_sum_ += of_step;
  }

  int64_t steps() const { return steps_; }
  int64_t step() const { return large_; }
  // Of the covariance of a sample's gradient; an estimate, and may be below 0.
  double trace() const {
    return mean(small_sum_ - large_sum_) / (1.0 / static_cast<double>(small_) - 1.0 / static_cast<double>(large_));
  }
  // Of the gradient of all samples, likewise.
  double squared_norm() const { return mean(large_sum_) - trace() / static_cast<double>(large_); }
  // The noise scale; infinite if the norm is lost in the noise.
  double samples() const { return squared_norm() > 0 ? trace() / squared_norm() : INFINITY; }

 private:
  double mean(double sum) const { return sum / static_cast<double>(steps_); }

  int64_t small_, large_;
  int64_t steps_ = 0;
  double small_sum_ = 0, large_sum_ = 0;
};

// Follows a training by its hooks, which it sets: on_loss and on_gradients. Copies all gradients twice a step. Leaves
// out the last step of an epoch if it has fewer samples. The arena and the result must outlive the training.
// REQUIRES: accumulate >= 2, no graph
void watch_noise(NoiseScale& noise, ParameterArena& arena, int64_t accumulate, int64_t samples_of_epoch,
                 TrainHooks& hooks);

}  // namespace hs::bench::measure
