// Exercise 19, of docs/techniques/optimizers.md: a learning rate with warm-up and half a cosine, that a run may resume
// at any step. Edit exercise.cpp beside this file, then run tests/exercise 19.
#pragma once

#include <cstdint>

namespace exercise {

struct Schedule {
  double peak, floor;     // the highest rate, and the one at the end: 0 <= floor <= peak
  int64_t warmup, total;  // updates; both >= 0
};

// The rate of update `step`, counted from 0. It depends on the arguments alone, so a run that resumes continues with
// the same rates.
//
//   step < warmup      peak (step + 1) / (warmup + 1): the first rate is not 0, and step `warmup` has the peak
//   otherwise          from peak to floor along half a cosine: floor + (peak - floor) (1 + cos(pi x)) / 2,
//                      with x = (step - warmup) / (total - warmup)
//   step >= total      floor, also if warmup >= total
//
// Within 1e-12 of the peak for steps and totals up to 2^40.
double rate(const Schedule& schedule, int64_t step);

// The rate for micro-batch number `micro_batch`, counted from 0, if `accumulate` of them make one update and each epoch
// has `per_epoch` micro-batches. What is left at the end of an epoch makes an update with fewer micro-batches: the next
// epoch begins with a new one. REQUIRES: micro_batch >= 0, accumulate > 0, per_epoch > 0
double rate_of_micro_batch(const Schedule& schedule, int64_t micro_batch, int64_t accumulate, int64_t per_epoch);

// A schedule counted in epochs, for a run with these micro-batches per epoch: the same peak and floor, and the number
// of updates of warmup_epochs and of all epochs. Part of an epoch of warm-up counts up to the next update. REQUIRES: 0
// <= warmup_epochs, 0 <= epochs
Schedule in_epochs(double peak, double floor, double warmup_epochs, int64_t epochs, int64_t accumulate,
                   int64_t per_epoch);

}  // namespace exercise
