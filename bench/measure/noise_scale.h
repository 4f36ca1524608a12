// The gradient noise scale: how many samples a step could average before more of them no longer make its gradient much
// better (McCandlish, Kaplan, Amodei, "An empirical model of large-batch training", 2018, section 2.2 and appendix
// A.1).
//
// The mean squared norm of the gradient of n samples is |G|^2 + trace / n: G is the gradient of all, trace that of the
// covariance of one sample's. Two sizes give both: the first micro-batch of a step and the whole step.
#pragma once

#include <cstdint>

#include "engine/module.h"
#include "models/train.h"

namespace hs::bench::measure {

class NoiseScale {
 public:
  NoiseScale(int64_t micro_batch, int64_t step) : small_(micro_batch), large_(step) {}

  // Squared norms of one step's mean gradients.
  void add(double of_micro_batch, double of_step);

  int64_t steps() const { return steps_; }
  double trace() const;         // of the covariance of a sample's gradient; an estimate, and may be below 0
  double squared_norm() const;  // of the gradient of all samples, likewise
  double samples() const;       // trace / squared_norm: the noise scale; infinite if the norm is lost in the noise
  int64_t step() const { return large_; }

 private:
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
