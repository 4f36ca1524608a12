// The course of a run: what is known of it while it goes on, and where its time went over time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/measure/experiment.h"

namespace hs::bench::measure {

class Course {
 public:
  // Of a run with this seed, whose epochs have so many samples, in steps of so many.
  Course(uint64_t seed, int64_t samples, int64_t step_samples);
  // Adds to the hooks, which must not outlive this, what takes note of the run.
  void attach(TrainHooks& hooks);

  // The run as if it had ended after the last step: an epoch that goes on is its last one, not tested. REQUIRES: a step
  RunRecord so_far(size_t peak_bytes) const;
  const std::vector<CoursePoint>& points() const { return run_.course; }

 private:
  void add_step(const Progress& progress);

  RunRecord run_;
  const int64_t samples_, step_samples_;
  bool is_within_epoch_ = false;
  double epoch_began_ = 0;
  double interval_ = 0.1;  // between points, in seconds: losses are read as often
};

}  // namespace hs::bench::measure
