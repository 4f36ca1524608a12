// The learning rate as a function of the steps taken. It is computed on the device, from the device's own count, so a
// skipped step does not advance it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "engine/host_device.h"

namespace hs {

enum class ScheduleKind : uint8_t {
  constant,
  linear,  // falls linearly, to 0 after the last step
  cosine,  // the same, along half a cosine (Loshchilov and Hutter, "SGDR", ICLR 2017)
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  int32_t warmup_steps = 0;  // the rate rises linearly from 0, and is full at this step
  int32_t total_steps = 0;   // of the whole training; unused by constant
};

// Throws Error (usage) unless the name is constant, linear or cosine.
ScheduleKind parse_schedule(std::string_view name);

// sin(pi * x) for |x| <= 1/2, to 1e-7: Taylor's series. The library's sine would do, but uses local memory on a GPU.
HS_HOST_DEVICE constexpr float sine_of_half_turns(float x) {
  const float angle = 3.14159265f * x, square = angle * angle;
  return angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110)))));
}

// The factor on the learning rate in the step after `step` steps have been taken.
HS_HOST_DEVICE inline float schedule_factor(const Schedule& schedule, int32_t step) {
  if (step < schedule.warmup_steps) return static_cast<float>(step + 1) / static_cast<float>(schedule.warmup_steps + 1);
  if (schedule.kind == ScheduleKind::constant) return 1;
  const int32_t length = schedule.total_steps - schedule.warmup_steps;
  const float progress =
      length > 0 ? fminf(static_cast<float>(step - schedule.warmup_steps) / static_cast<float>(length), 1.0f) : 1.0f;
  if (schedule.kind == ScheduleKind::linear) return 1 - progress;
  return 0.5f * (1 + sine_of_half_turns(0.5f - progress));
}

}  // namespace hs
