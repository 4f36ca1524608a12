// The course of a run: what is known of it while it goes on, and where its time went over time.
#pragma once

#include <cstdint>

#include "bench/measure/experiment.h"

namespace hs::bench::measure {

class Course {
 public:
  // Of a run with this seed, whose epochs have so many samples, in steps of so many.
  Course(uint64_t seed, int64_t samples, int64_t step_samples) : samples_(samples), step_samples_(step_samples) {
    run_.seed = seed;
  }
  void on_step(const Progress& progress);
  void on_epoch(const EpochResult& result);  // after its last step, or resumed there
  // The run as if it had ended after the last step: an epoch that goes on is its last one, not tested.
  const RunRecord& so_far() const { return run_; }

 private:
  RunRecord run_;
  const int64_t samples_, step_samples_;
  bool is_within_epoch_ = false;
  double epoch_began_ = 0;
  double interval_ = 0.1;  // between points, in seconds: losses are read as often
};

}  // namespace hs::bench::measure
