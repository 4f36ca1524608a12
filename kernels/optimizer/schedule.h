// The learning rate as a function of the steps taken. It is computed on the device, from the device's own count, so a
// skipped step does not advance it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace hs
