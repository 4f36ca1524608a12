#include "bench/measure/course.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hs::bench::measure {
void Course::on_step(const Progress& p) {
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
  if (points.size() < 60) return;
  for (size_t i = 0; i < points.size() / 2; ++i) points[i] = points[2 * i + 1];
  points.resize(points.size() / 2);
  interval_ *= 2;
}

void Course::on_epoch(const EpochResult& result) {
  if (std::exchange(is_within_epoch_, false)) run_.result.epochs.pop_back();
  run_.result.epochs.push_back(result);
}

}  // namespace hs::bench::measure
