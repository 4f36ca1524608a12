// The learning rate as a function of the steps taken. It is computed on the device, from the device's own count, so a
// skipped step does not advance it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/host_device.h"

namespace hs {

enum class ScheduleKind : uint8_t {  // how the rate goes on after the warm-up
  constant,
  linear,  // falls linearly, to 0 after the last step
  cosine,  // the same, along half a cosine (Loshchilov and Hutter, "SGDR", ICLR 2017)
  step,    // is multiplied by `factor` every `every` steps
  // Rises along half a cosine from 1/25 in the first 30 % of the steps, then falls to 1/250,000 (Smith and Topin,
  // "Super-convergence", 2018; the numbers are the defaults of PyTorch's OneCycleLR).
  one_cycle,
  // Grows or falls by one ratio in each step; `factor` after the last: a range test. The one kind with powf, whose last
  // bits differ between the devices.
  exponential,
};

// A schedule's kind and settings.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;  // the curve
  int32_t warmup_steps = 0;                    // the rate rises linearly from 0, and is full at this step
  int32_t total_steps = 0;                     // of the whole training; unused by constant and step
  int32_t every = 1;                           // steps per change, for step
  float factor = 0.1f;                         // per change, for step; after all steps, for exponential
};

// Throws Error (usage) unless the name is one of schedule_names().
ScheduleKind parse_schedule(std::string_view name);
std::vector<std::string> schedule_names();  // "one-cycle" for one_cycle

// sin(pi * x) for |x| <= 1/2, to 1e-7: Taylor's series. The library's sine would do, but uses local memory on a GPU.
HS_HOST_DEVICE constexpr float sine_of_half_turns(float x) {
  const float angle = 3.14159265f * x, square = angle * angle;
  return angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110)))));
}

// From `start` to `end` along half a cosine, as x goes from 0 to 1.
HS_HOST_DEVICE inline float along_cosine(float start, float end, float x) {
  return end + (start - end) * 0.5f * (1 + sine_of_half_turns(0.5f - fminf(x, 1.0f)));
}

// x^n by repeated squaring: the same bits on every device, which powf of different libraries are not. REQUIRES: n >= 0
HS_HOST_DEVICE constexpr float whole_power(float x, int32_t n) {
  float power = 1;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) power *= x;
  }
  return power;
}

HS_HOST_DEVICE inline float one_cycle_factor(int32_t total_steps, int32_t step) {  // see ScheduleKind::one_cycle
  constexpr float first = 1.0f / 25, last = first / 1e4f;
  const float top = 0.3f * static_cast<float>(total_steps) - 1, now = static_cast<float>(step);
  if (now <= top) return along_cosine(first, 1, top > 0 ? now / top : 1.0f);
  // Of one to three steps the top is before the first.
  return along_cosine(1, last, (now - top) / (static_cast<float>(total_steps) - 1 - top));
}

// The factor on the learning rate in the step after `step` steps have been taken.
HS_HOST_DEVICE inline float schedule_factor(const Schedule& schedule, int32_t step) {
  if (step < schedule.warmup_steps) return static_cast<float>(step + 1) / static_cast<float>(schedule.warmup_steps + 1);
  if (schedule.kind == ScheduleKind::constant) return 1;
  if (schedule.kind == ScheduleKind::step) return whole_power(schedule.factor, step / schedule.every);
  if (schedule.kind == ScheduleKind::one_cycle) return one_cycle_factor(schedule.total_steps, step);
  const int32_t length = schedule.total_steps - schedule.warmup_steps;
  const float progress =
      length > 0 ? fminf(static_cast<float>(step - schedule.warmup_steps) / static_cast<float>(length), 1.0f) : 1.0f;
  if (schedule.kind == ScheduleKind::linear) return 1 - progress;
  if (schedule.kind == ScheduleKind::exponential) return powf(schedule.factor, progress);
  return 0.5f * (1 + sine_of_half_turns(0.5f - progress));
}

}  // namespace hs
