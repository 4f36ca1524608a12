#include "bench/measure/course.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hs::bench::measure {
namespace {

constexpr size_t most_points = 60;

}  // namespace

Course::Course(uint64_t seed, int64_t samples, int64_t step_samples) : samples_(samples), step_samples_(step_samples) {
  run_.seed = seed;
}

void Course::attach(TrainHooks& hooks) {
  hooks.on_step = [this, next = hooks.on_step](const Progress& progress) {
    add_step(progress);
    if (next) next(progress);
  };
  hooks.on_epoch = [this, next = hooks.on_epoch](int64_t epoch, const EpochResult& result) {
    is_within_epoch_ = false;
    run_.result.epochs.back() = result;
    if (next) next(epoch, result);
  };
  hooks.on_validation = [this, next = hooks.on_validation](const Validation& validation) {
    run_.result.validations.push_back(validation);
    if (next) next(validation);
  };
}

void Course::add_step(const Progress& p) {
  TrainResult& result = run_.result;
  if (!std::exchange(is_within_epoch_, true)) {
    epoch_began_ = result.seconds;
    result.epochs.push_back({p.loss, 0, {std::nan(""), std::nan("")}});
  }
  EpochResult& epoch = result.epochs.back();
  epoch.training_loss = p.loss;
  epoch.seconds = p.seconds - epoch_began_;
  result.seconds = p.seconds;
  result.parts = p.parts;
  result.steps = (p.epoch - 1) * p.steps_per_epoch + p.step;
  result.samples = (p.epoch - 1) * samples_ + std::min(p.step * step_samples_, samples_);

  std::vector<CoursePoint>& points = run_.course;
  if (p.seconds < (points.empty() ? 0 : points.back().seconds) + interval_) return;
  points.push_back({p.seconds, p.loss, p.parts});
  if (points.size() < most_points) return;
  for (size_t i = 0; i < points.size() / 2; ++i) points[i] = points[2 * i + 1];
  points.resize(points.size() / 2);
  interval_ *= 2;
}

RunRecord Course::so_far(size_t peak_bytes) const {
  RunRecord run = run_;
  run.peak_bytes = peak_bytes;
  return run;
}

}  // namespace hs::bench::measure
