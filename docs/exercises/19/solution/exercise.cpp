#include "docs/exercises/19/exercise.h"

#include <cmath>
#include <numbers>

namespace exercise {
namespace {

// Of one epoch. The last may have fewer micro-batches.
int64_t updates(int64_t accumulate, int64_t per_epoch) { return (per_epoch + accumulate - 1) / accumulate; }

}  // namespace

double rate(const Schedule& schedule, int64_t step) {
  const auto [peak, floor, warmup, total] = schedule;
  if (step >= total) return floor;  // first: below, total - warmup may not be positive
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  const double x = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * x)) / 2;
}

double rate_of_micro_batch(const Schedule& schedule, int64_t micro_batch, int64_t accumulate, int64_t per_epoch) {
  const int64_t epoch = micro_batch / per_epoch, within = micro_batch % per_epoch;
  return rate(schedule, epoch * updates(accumulate, per_epoch) + within / accumulate);
}

Schedule in_epochs(double peak, double floor, double warmup_epochs, int64_t epochs, int64_t accumulate,
                   int64_t per_epoch) {
  const int64_t count = updates(accumulate, per_epoch);
  return {peak, floor, static_cast<int64_t>(std::ceil(warmup_epochs * static_cast<double>(count))), epochs * count};
}

}  // namespace exercise
